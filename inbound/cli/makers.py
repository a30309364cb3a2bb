"""What only the command line can make of a configuration, for a process that consumes and one that is an ingress alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inbound import logs
from inbound.cli.files import admin_token, token_reader
from inbound.cli.policy import admin_policy
from inbound.cli.profiles import profiling_listener
from inbound.config import AdminConfig, Config
from inbound.http.rights import Token
from inbound.ingress.server import Ingress
from inbound.sections import Makers
from inbound.tracing.process import ProcessTracing


def makers(*, index: int | None = None, token: Callable[[AdminConfig], Token | None] = admin_token) -> Makers:
    """Return what makes the parts of a process; `index` is its number under `--processes`, `token` reads the admin port's."""
    tracing = ProcessTracing()
    return Makers(
        token=token,
        policy=admin_policy,
        ingress=partial(_ingress, shared=index is not None, tracing=tracing),
        logs=lambda config: logs.apply(config.logging),
        profiling=partial(profiling_listener, index=index),
        tracing=tracing,
    )


def _ingress(config: Config, *, shared: bool, tracing: ProcessTracing) -> Ingress | None:
    """Return the ingress, not started; processes of one `--processes` share its port: the system spreads connections."""
    if config.ingress is None:
        return None
    token = token_reader(config.ingress.token_file, "ingress.token_file")
    return Ingress(config.ingress, config.kafka, token=token, shared=shared, tracing=tracing)
