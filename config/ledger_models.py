"""The ledger's part of the configuration: where the record of what was done is kept, and for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from inbound.config.units import shown
from inbound.config.values import Part, TopicName, duration, flag, folder, text, whole, wrong, wrong_at


def _place(value: Any) -> Path | str:
    if isinstance(value, Path) or "://" not in text(value):
        return folder(value)
    uri = text(value)
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if not parts.scheme or not uri.isprintable() or not (parts.netloc or parts.path.strip("/")):
        raise wrong(f"need a folder, or a URI such as s3://bucket/ledger, got {shown(uri)}")
    if parts.password is not None:
        raise wrong("holds a password; leave it to the environment or role that the file system's client finds itself")
    return uri


def _maybe(value: Any) -> bool | None:
    return None if value is None else flag(value)


def _spool(value: Any) -> Path | None:
    return None if value is None else folder(value)


class LedgerConfig(Part):
    """The record of what was handed out and committed, from which nothing-lost is proven."""

    type: Literal["files", "kafka", "none"] = Field(
        default="files", description="Where it is kept: in files, or in a Kafka topic; `none` keeps no ledger."
    )
    path: Annotated[
        Path | str,
        BeforeValidator(_place),
        PlainSerializer(str, when_used="json"),
        WithJsonSchema({"type": "string"}),
    ] = Field(
        default=Path("ledger"),
        description="Folder of the files, relative to the working directory; or a URI such as s3://bucket/ledger, to which "
        "whole files are shipped (needs pyarrow, extra `ledger`).",
    )
    retention: Annotated[float, duration(over=True)] = Field(
        default=7 * 86400.0, description="How long entries are kept."
    )
    compact: Annotated[bool | None, BeforeValidator(_maybe)] = Field(
        default=None,
        description="Make Parquet of files that nobody writes to any more. Default: if pyarrow is installed.",
    )
    spool: Annotated[
        Path | None, BeforeValidator(_spool), PlainSerializer(lambda p: None if p is None else str(p), when_used="json")
    ] = Field(
        default=None,
        description="With a URI: the local folder that files are written to before they are shipped. Default: "
        "ledger-spool below inbound's state folder.",
    )
    ship_interval: Annotated[float, duration(1)] = Field(
        default=30.0, description="With a URI: how long what was written stays in the spool at most, if all goes well."
    )
    topic: TopicName = Field(
        default="inbound-ledger", description="With type kafka: the topic, which is made if it is not there."
    )
    partitions: Annotated[int, whole(1, 10_000)] = Field(
        default=8, description="With type kafka: partitions of the topic where it is made."
    )
    replication_factor: Annotated[int, whole(1, 100)] | None = Field(
        default=None,
        description="With type kafka: copies of each partition where the topic is made. Default: 3, or one for each broker "
        "where there are fewer.",
    )
    on_failure: Literal["hold", "degrade"] = Field(
        default="hold", description="When it cannot be written: hand out nothing more, or go on without proof."
    )

    @property
    def uri(self) -> str | None:
        """The URI that files are shipped to; None: they stay where they are written."""
        return self.path if self.type == "files" and isinstance(self.path, str) else None

    @model_validator(mode="after")
    def _check(self) -> LedgerConfig:
        if self.spool is not None and self.uri is None:
            problem = wrong("is only used where ledger.path is a URI; leave it out")
            raise wrong_at("LedgerConfig", [(("spool",), problem, str(self.spool))])
        return self
