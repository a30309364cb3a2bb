"""Every error that inbound raises, grouped by who must act.

    InboundError
    ├── ConfigError                     you: the configuration or a plugin is wrong (exit 2)
    ├── TransientError                  inbound: it retries
    │   ├── ZkUnavailableError          no usable ZooKeeper connection; the request did not execute
    │   ├── ZkAmbiguousError            the answer was lost; the request may or may not have executed
    │   └── BrokerUnavailableError      Kafka does not answer
    │       └── BrokerRefusedError      it does, and does not let us in: password, certificate, token
    ├── ZkNodeError                     you: ZooKeeper does not do what is asked of one node, and asking again does not help
    │   └── ZkDeniedError               its access rights do not let us in
    ├── PartitionError                  one partition; the others go on
    │   ├── PartitionLostError          another consumer owns it; nothing more is committed
    │   └── OffsetOutOfRangeError       the position is not in the log
    ├── ProcessorError                  the processor: it raised, or answered with something unusable
    │   ├── BadResponseError            not a BatchResponse, or an offset that may not be used
    │   ├── UndecodableError            a record that is no CloudEvent, where the processor insists on one
    │   └── SinkError                   what a sink sends to did not take it
    ├── LedgerError                     the ledger cannot be written or read
    ├── SparkError                      a Spark job cannot start or go on
    ├── ConsumerIdTakenError            another live process runs under our consumer id (exit 1)
    ├── PublishError, DemoError, ...    one command cannot go on; each stands beside the command's code
    ├── EmbeddedClusterError            a server of the embedded cluster did not come up
    └── IllegalTransitionError          a defect of inbound: please report it

A message says the subject, what happened, and what to do.
"""

from __future__ import annotations


class InboundError(Exception):
    """Base of all errors of inbound."""


class ConfigError(InboundError):
    """The configuration, or something it names, cannot be used. The process ends with exit code 2."""


class TransientError(InboundError):
    """Something outside is away for now; inbound retries."""


class ZkUnavailableError(TransientError):
    """ZooKeeper cannot be reached, and the request was not sent."""


class ZkAmbiguousError(TransientError):
    """The connection or the time ran out before the answer came: the request may have executed."""


class ZkNodeError(InboundError):
    """ZooKeeper does not do what is asked of the node at `path`; nothing was done.

    `index` is the operation to blame, where a transaction was asked for.
    """

    def __init__(self, message: str, path: str = "", index: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.index = index


class ZkDeniedError(ZkNodeError):
    """A node's access rights (ACL) do not let our user do this; nothing was done."""


class BrokerUnavailableError(TransientError):
    """Kafka does not answer, or the partition has no leader at the moment."""


class BrokerRefusedError(BrokerUnavailableError):
    """A broker does not let us in, or we do not trust it. Tried again: credentials can be corrected while it runs."""


class PartitionError(InboundError):
    """Something about one partition; `topic` and `partition` say which."""

    def __init__(self, topic: str, partition: int, message: str) -> None:
        super().__init__(f"{topic}/{partition}: {message}")
        self.topic = topic
        self.partition = partition


class PartitionLostError(PartitionError):
    """Another consumer owns the partition now. Its offset was not committed by us."""


class OffsetOutOfRangeError(PartitionError):
    """The position to read from is not in the partition's log; or is, but the log was cut before it and has grown again.

    `cut` is the offset from which on the log holds other records than were read, where the brokers can tell.
    """

    def __init__(
        self, topic: str, partition: int, offset: int, start: int, end: int, *, cut: int | None = None
    ) -> None:
        said = f"offset {offset} is outside the log, which holds {start} to {end}"
        if start <= offset <= end or cut is not None:
            where = "" if cut is None else f" at {cut}"
            said = f"the log was cut{where}, before offset {offset}; it holds {start} to {end} now"
        super().__init__(topic, partition, said)
        self.offset = offset
        self.start = start
        self.end = end
        self.cut = cut

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut; else its beginning was deleted by retention."""
        return self.offset >= self.start


class UnreadableBatchError(PartitionError):
    """A batch of records that is not to be taken apart: broken, or larger than it may be once it is decompressed."""

    def __init__(self, topic: str, partition: int, offset: int, why: str, *, broken: bool = True) -> None:
        """`broken`: perhaps only as it came; fetched again it may be whole."""
        self.what = f"the batch of records at offset {offset} cannot be read: {why}"
        super().__init__(topic, partition, self.what)
        self.offset = offset
        self.broken = broken
        self.faced = False  # the partition was held because of it

    @classmethod
    def too_large(
        cls, topic: str, partition: int, offset: int, next_offset: int, size: int, limit: int
    ) -> UnreadableBatchError:
        """Return what says that `size` bytes of a producer become more than `limit`; `next_offset` is behind the batch."""
        why = f"{size} bytes become more than {limit} (reader.max_decompressed_bytes) when they are decompressed; raise that"
        return cls._beyond_a_bound(topic, partition, offset, next_offset, why)

    @classmethod
    def too_many_headers(
        cls, topic: str, partition: int, offset: int, next_offset: int, most: int
    ) -> UnreadableBatchError:
        """Return what says that its records have more than `most` headers; `next_offset` is behind the batch."""
        why = f"its records have more than {most} headers; see who publishes that, raise reader.max_decompressed_bytes"
        return cls._beyond_a_bound(topic, partition, offset, next_offset, why)

    @classmethod
    def _beyond_a_bound(
        cls, topic: str, partition: int, offset: int, next_offset: int, why: str
    ) -> UnreadableBatchError:
        way_out = f"or move the group past it, to {next_offset} (inbound offsets reset)"
        return cls(topic, partition, offset, f"{why}, {way_out}", broken=False)


class ProcessorError(InboundError):
    """The processor raised, or gave an answer that cannot be used."""


class BadResponseError(ProcessorError):
    """The processor returned something other than a usable BatchResponse."""


class UndecodableError(ProcessorError):
    """A record is not a CloudEvent."""


class SinkError(ProcessorError):
    """What a sink sends to did not take an event, or a batch."""


class LedgerError(InboundError):
    """The ledger cannot be written or read."""


class SparkError(InboundError):
    """A Spark job cannot start or go on: Java, PySpark, the connector, or a server that it needs is missing."""


class ResetError(InboundError):
    """A reset of offsets cannot be done as asked for: the message says why, and what would be valid."""


class UnknownRefError(ResetError):
    """A reset names something that no RefMapper finds."""


class ConsumerIdTakenError(InboundError):
    """Another live process of the group uses the same consumer id."""


class EmbeddedClusterError(InboundError):
    """A server of the embedded cluster did not come up, or a jar could not be fetched."""


class IllegalTransitionError(InboundError):
    """A state machine was asked for a step that its table does not list."""
