"""Every error that inbound raises, grouped by who must act.

    InboundError
    ├── ConfigError                     you: the configuration or a plugin is wrong (exit 2)
    ├── TransientError                  inbound: it retries
    │   ├── ZkUnavailableError          no usable ZooKeeper connection; the request did not execute
    │   ├── ZkAmbiguousError            the answer was lost; the request may or may not have executed
    │   └── BrokerUnavailableError      Kafka does not answer
    │       └── BrokerRefusedError      it answers, and refuses our password, certificate or token
    ├── ZkNodeError                     you: ZooKeeper refuses a request for one node, and a retry does not help
    │   └── ZkDeniedError               its access rights (ACL) refuse us
    ├── PartitionError                  one partition; the others go on
    │   ├── PartitionLostError          another consumer owns it; nothing more is committed
    │   └── OffsetOutOfRangeError       the position is not in the log
    ├── ProcessorError                  the processor: it raised, or returned an unusable response
    │   ├── BadResponseError            not a BatchResponse, or an offset that may not be used
    │   ├── UndecodableError            a record is no CloudEvent, and the processor requires one
    │   └── SinkError                   the target of a sink did not accept an event or batch
    ├── LedgerError                     the ledger cannot be written or read
    ├── SparkError                      a Spark job cannot start or go on
    ├── ConsumerIdTakenError            another live process runs under our consumer id (exit 1)
    ├── PublishError, DemoError, ...    one command cannot go on; each stands beside the command's code
    ├── EmbeddedClusterError            a server of the embedded cluster did not start
    └── IllegalTransitionError          a defect of inbound: please report it

A message names the subject, the fault and the remedy.
"""

from __future__ import annotations


class InboundError(Exception):
    """Base of all errors of inbound."""


class ConfigError(InboundError):
    """The configuration, or something it names, cannot be used.

    The process ends with exit code 2.
    """


class TransientError(InboundError):
    """Another system is unavailable; inbound retries."""


class ZkUnavailableError(TransientError):
    """ZooKeeper cannot be reached, and the request was not sent."""


class ZkAmbiguousError(TransientError):
    """The answer of ZooKeeper was lost: the request may have executed."""


class ZkNodeError(InboundError):
    """ZooKeeper refuses a request for the node at `path`; nothing was done.

    `index` is the refused operation of a transaction.
    """

    def __init__(self, message: str, path: str = "", index: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.index = index


class ZkDeniedError(ZkNodeError):
    """A node's ACL does not allow our user's request; nothing was done."""


class BrokerUnavailableError(TransientError):
    """Kafka does not answer, or the partition has no leader."""


class BrokerRefusedError(BrokerUnavailableError):
    """A broker refuses us, or we it; retried, as credentials can change."""


class PartitionError(InboundError):
    """Base of errors of one partition, which `topic` and `partition` name."""

    def __init__(self, topic: str, partition: int, message: str) -> None:
        super().__init__(f"{topic}/{partition}: {message}")
        self.topic = topic
        self.partition = partition


class PartitionLostError(PartitionError):
    """Another consumer owns the partition; we have not committed the offset."""


class OffsetOutOfRangeError(PartitionError):
    """The position is outside the log, or the log was cut before.

    A cut log may have grown past the position again: from the offset `cut` on it holds other records than were read. None: the
    brokers cannot tell.
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
    """A batch of records is broken, or too large once decompressed."""

    def __init__(self, topic: str, partition: int, offset: int, why: str, *, broken: bool = True) -> None:
        """`broken`: perhaps only in transit; another fetch may bring it whole."""
        self.what = f"the batch of records at offset {offset} cannot be read: {why}"
        super().__init__(topic, partition, self.what)
        self.offset = offset
        self.broken = broken
        self.faced = False  # the partition was held because of it

    @classmethod
    def too_large(
        cls, topic: str, partition: int, offset: int, next_offset: int, size: int, limit: int
    ) -> UnreadableBatchError:
        """Return the error for `size` bytes that decompress to more than `limit`.

        `next_offset` is behind the batch.
        """
        why = f"{size} bytes become more than {limit} (reader.max_decompressed_bytes) when they are decompressed; raise that"
        return cls._beyond_a_bound(topic, partition, offset, next_offset, why)

    @classmethod
    def too_many_headers(
        cls, topic: str, partition: int, offset: int, next_offset: int, most: int
    ) -> UnreadableBatchError:
        """Return the error for records with more than `most` headers together."""
        why = f"its records have more than {most} headers; see who publishes that, raise reader.max_decompressed_bytes"
        return cls._beyond_a_bound(topic, partition, offset, next_offset, why)

    @classmethod
    def _beyond_a_bound(
        cls, topic: str, partition: int, offset: int, next_offset: int, why: str
    ) -> UnreadableBatchError:
        way_out = f"or move the group past it, to {next_offset} (inbound offsets reset)"
        return cls(topic, partition, offset, f"{why}, {way_out}", broken=False)


class ProcessorError(InboundError):
    """The processor raised, or returned an unusable response."""


class BadResponseError(ProcessorError):
    """The processor returned something other than a usable BatchResponse."""


class UndecodableError(ProcessorError):
    """A record is not a CloudEvent."""


class SinkError(ProcessorError):
    """The target of a sink did not accept an event or batch."""


class LedgerError(InboundError):
    """The ledger cannot be written or read."""


class SparkError(InboundError):
    """A Spark job lacks Java, PySpark, the connector, or a server."""


class ResetError(InboundError):
    """A reset is invalid; the message says what would be valid."""


class UnknownRefError(ResetError):
    """A reset names something that no RefMapper finds."""


class ConsumerIdTakenError(InboundError):
    """Another live process of the group uses the same consumer id."""


class EmbeddedClusterError(InboundError):
    """The embedded cluster did not start: a server, or a jar's download."""


class IllegalTransitionError(InboundError):
    """A state machine has no transition for this state and event."""
