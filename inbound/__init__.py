"""ZooKeeper-coordinated Kafka consumers: shared partitions, batches for your processor, proven delivery."""

from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse, PlainRecord, Record, Undecodable
from inbound.topic_partition import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchEventProcessor",
    "BatchResponse",
    "Context",
    "PlainRecord",
    "Record",
    "TopicPartition",
    "Undecodable",
    "__version__",
]
