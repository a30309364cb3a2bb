"""The listener that takes profiles of the running process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from inbound.config.admin_models import AdminTlsConfig
from inbound.config.values import ListenAddress, Listening, flag, secret_file, whole


class ProfilingConfig(Listening):
    """The HTTP listener that takes profiles of the process, as `go tool pprof` reads them."""

    listen: ListenAddress = Field(
        default="127.0.0.1:8008",
        description="Address and port; if it is taken the start fails. Port 0 is any free one. With `run --processes N` each "
        "process has its own: this port for the first, the next one for the second, and so on.",
    )
    token_file: Annotated[Path, BeforeValidator(secret_file), PlainSerializer(str, when_used="json")] | None = Field(
        default=None,
        description="File with the token that each request needs, as `Authorization: Bearer ...` or as the password of `Basic`; on "
        "an address that other machines can reach nothing is answered without. Relative to the working directory; read again "
        "at each request.",
    )
    tls: AdminTlsConfig | None = Field(
        default=None,
        description="HTTPS instead of HTTP. Whoever shows a certificate that `client_ca_file` verifies needs no token.",
    )
    heap: Annotated[bool, BeforeValidator(flag)] = Field(
        default=False,
        description="Trace allocations from the start, for `/debug/pprof/heap`; it makes a process much slower. Default: from the "
        "first time that somebody asks for them.",
    )
    heap_frames: Annotated[int, whole(1, 100)] = Field(
        default=16, description="How many calls are kept of each allocation that is traced."
    )
