"""What of the manifests cannot be used: a file, a document, an object, or one subscriber. Everything else goes on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from inbound.config.kafka_channel import KIND


@dataclass(frozen=True)
class ManifestOrigin:
    """Where a subscription comes from."""

    file: str
    where: str  # file and line
    namespace: str  # of its KafkaChannel
    name: str
    path: str  # of the subscriber in its object
    uid: str

    @property
    def channel(self) -> str:
        """The name of the `KafkaChannel`, as that of a `Manifest`."""
        return f"{self.namespace}.{self.name}"

    def refused(self, problem: str) -> RefusedManifest:
        """Return that it cannot be used."""
        return RefusedManifest(
            kind=KIND, file=self.file, where=self.where, problem=problem, namespace=self.namespace, name=self.name,
            path=self.path, uid=self.uid,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RefusedManifest:
    """One thing that cannot be used, and stops alone."""

    kind: str | None  # None: the file, or a document of it, cannot be read
    file: str
    where: str  # file and line
    problem: str  # a line for each problem, with file, line, path, and what to do
    namespace: str | None = None
    name: str | None = None
    path: str | None = None  # of the subscriber in its object; None: the whole object
    uid: str | None = None  # of the subscriber, if it can be read

    @property
    def channel(self) -> str | None:
        """The name of the `KafkaChannel`, as that of a `Manifest`; None: it is none, or not known."""
        known = self.kind == KIND and self.namespace and self.name
        return f"{self.namespace}.{self.name}" if known else None

    @property
    def subject(self) -> str:
        """What it is, for people: `KafkaChannel shop/orders, subscriber u-1`."""
        subscriber = f", subscriber {self.uid or self.path}" if self.path is not None else ""
        return f"{self.kind} {self.namespace}/{self.name}{subscriber}" if self.kind and self.name else self.file

    def covers(self, origin: ManifestOrigin, read: Collection[str]) -> bool:
        """Return whether a subscription that there was before may be missing because of this.

        `read` are the names of the channels that can be read: what those do not say any more is gone.
        """
        if self.channel is None:
            return self.kind in (None, KIND) and self.file == origin.file and origin.channel not in read
        return self.channel == origin.channel and self.uid in (None, origin.uid)
