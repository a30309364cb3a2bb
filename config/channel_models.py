"""One channel: what it reads, how, and which processor gets it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from inbound.config.coordinator_models import (
    CoordinatorConfig,
    DynamicCoordinatorConfig,
    StaticCoordinatorConfig,
)
from inbound.config.mirror_models import OffsetsConfig
from inbound.config.units import format_size, shown
from inbound.config.values import (
    MODULE_CLASS,
    ChannelName,
    Part,
    PathPart,
    Problem,
    TopicName,
    duration,
    entries,
    is_module_class,
    matching,
    size,
    text,
    topic_name,
    whole,
    wrong,
    wrong_at,
)
from inbound.topic_names import INTERNAL, chooser

MIB = 2**20
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def _topics(value: Any) -> Any:
    topics = entries(value)
    if not topics:
        raise wrong("need at least one topic, got an empty list")
    seen = set()
    for topic in topics:
        if isinstance(topic, str) and topic in seen:
            raise wrong(f"lists {shown(topic)} twice; keep one")
        seen.add(topic if isinstance(topic, str) else id(topic))
    return topics


def _topics_schema(schema: dict[str, Any]) -> None:
    del schema["default"]  # nothing; but nobody may write that
    schema |= {"minItems": 1, "uniqueItems": True}


def regular_expression(value: Any) -> str:
    """Return `value` if it is a regular expression."""
    pattern = text(value)
    if not pattern:
        raise wrong("need a regular expression, got empty text")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:  # a warning only where they are errors
        raise wrong(f"need a regular expression, got {shown(pattern)}: {error}") from None
    return pattern


def _processor_type(value: Any) -> str:
    name = text(value)
    if is_module_class(name) or re.fullmatch(_NAME, name):
        return name
    raise wrong(f"need the name of a processor, or module:Class, got {shown(name)}")


class OnErrorConfig(Part):
    """What happens to a batch that the processor cannot handle."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"then": {"const": "dead-letter"}}, "required": ["then"]},
            "then": {"properties": {"dead_letter_topic": {"type": "string"}}, "required": ["dead_letter_topic"]},
            "else": {"properties": {"dead_letter_topic": {"type": "null"}}},
        }
    )

    max_attempts: Annotated[int, whole(0)] = Field(
        default=10, description="How often a batch is tried before `then` happens; 0 is for ever."
    )
    then: Literal["hold", "skip", "dead-letter"] = Field(
        default="hold",
        description="Keep the partition waiting, go on after the batch, or send it to `dead_letter_topic`.",
    )
    dead_letter_topic: Annotated[str, BeforeValidator(topic_name)] | None = Field(
        default=None,
        description="Topic for what is given up; only with `then: dead-letter`, and none that the channel reads.",
    )

    @model_validator(mode="after")
    def _check(self) -> OnErrorConfig:
        if (self.then == "dead-letter") == (self.dead_letter_topic is not None):
            return self
        problem = f"is used only with then: dead-letter, but then is {self.then}; change one of the two"
        if self.dead_letter_topic is None:
            problem = "needs a topic, because then is dead-letter"
        raise wrong_at("OnErrorConfig", [(("dead_letter_topic",), wrong(problem), None)])


class ReaderConfig(Part):
    """How records are fetched, and how many make a batch."""

    client: Literal["kafka-python", "confluent-kafka"] = Field(
        default="kafka-python", description="The Kafka client to read with; confluent-kafka is faster, and an extra."
    )
    # As much as a fetch may ask for, and as long as it may wait: what librdkafka takes is less than Kafka's protocol holds.
    batch_bytes: Annotated[int, size(1, 1_000_000_000)] = Field(
        default=MIB, description="Bytes at which a batch is full."
    )
    max_batch_records: Annotated[int, whole(1, 1_000_000_000)] = Field(
        default=2000, description="Records at which a batch is full."
    )
    max_batch_bytes: Annotated[int, size(1)] = Field(
        default=10 * MIB,
        description="Bytes that a batch may grow to for large records; a larger record is delivered alone.",
    )
    prefetch_bytes: Annotated[int, size(1)] = Field(
        default=64 * MIB, description="Bytes, decoded, that wait in memory for the whole channel."
    )
    max_decompressed_bytes: Annotated[int, size(1)] = Field(
        default=64 * MIB,
        description="Bytes that a batch of a producer may become when it is decompressed; its partition is held at a larger one. "
        "With kafka-python; librdkafka has a bound for zstd alone (SECURITY.md).",
    )
    idle_wait: Annotated[float, duration(at_most=300.0, over=True)] = Field(
        default=0.1, description="How long a partition with nothing to read rests."
    )

    @model_validator(mode="after")
    def _check(self) -> ReaderConfig:
        batch, largest, prefetch = map(format_size, (self.batch_bytes, self.max_batch_bytes, self.prefetch_bytes))
        problems: list[Problem] = []
        if self.max_batch_bytes < self.batch_bytes:
            problems.append((("max_batch_bytes",), wrong(f"need at least batch_bytes ({batch}), got {largest}"), None))
        if self.prefetch_bytes < self.batch_bytes:
            problems.append((("prefetch_bytes",), wrong(f"need at least batch_bytes ({batch}), got {prefetch}"), None))
        if problems:
            raise wrong_at("ReaderConfig", problems)
        return self


class ProcessorConfig(Part):
    """The code that gets the batches."""

    type: Annotated[str, BeforeValidator(_processor_type), matching(f"({_NAME}|{MODULE_CLASS})")] = Field(
        description="Name of a processor that is installed, or module:Class."
    )
    # Not in repr: options can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own settings, checked by the processor's `Options` model."
    )


#: The processor of a channel with subscriptions, and its workers where nothing is said: they do not wait for answers.
DISPATCH = ProcessorConfig(type="dispatch")
SUBSCRIBERS_WORKERS = 1


def _subscriptions(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong(f"need a mapping of names to subscribers, got {shown(value)}")
    if not value:
        raise wrong("need at least one subscription, or a processor instead")
    return value


def _either_or(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema what `_check` says: one of topics and topics_pattern, of processor and subscriptions."""
    schema["required"].remove("processor")
    schema["oneOf"] = [
        {"required": ["topics"]},
        {"required": ["topics_pattern"], "properties": {"topics_pattern": {"type": "string"}}},
    ]
    pair = ("processor", "subscriptions")
    schema["anyOf"] = [{"required": [one], "not": {"required": [other]}} for one, other in (pair, pair[::-1])]


class ChannelTopics(Part):
    """What a channel reads, and in whose name."""

    topics: Annotated[tuple[TopicName, ...], BeforeValidator(_topics)] = Field(
        default=(),
        description="Topics to read; or give topics_pattern.",
        json_schema_extra=_topics_schema,
    )
    topics_pattern: Annotated[str, BeforeValidator(regular_expression)] | None = Field(
        default=None,
        description="Regular expression; every topic whose whole name matches is read, but for Kafka's own (`__...`) and that of "
        "the ledger. Or give topics.",
    )
    group: PathPart = Field(description="Name of the group that shares the partitions and the offsets.")

    def circle(self, topic: str) -> str | None:
        """Return why what fails must not go to `topic`: this channel would read it again. None: it would not."""
        if not chooser(self.topics, self.topics_pattern)(topic):
            return None
        read = (
            f"topics: {', '.join(self.topics)}"
            if self.topics_pattern is None
            else f"topics_pattern {self.topics_pattern}"
        )
        return (
            f"{topic} is read by this channel ({read}); a record that fails would go round for ever; choose a topic that it "
            "does not read"
        )


class ChannelSettings(Part):
    """How a channel reads, whatever it reads."""

    consumer_id: PathPart | None = Field(
        default=None,
        description="Name of this member; host-pid-random if not given. A fixed one takes over at once at restart.",
    )
    coordinator: CoordinatorConfig = Field(
        default_factory=DynamicCoordinatorConfig, description="Who owns which partition."
    )
    workers: Annotated[int, whole(1, 1000)] = Field(
        default=5, description="Threads that run the processor; 1 with subscriptions."
    )
    auto_offset_reset: Literal["earliest", "latest"] = Field(
        default="earliest", description="Where a group without offset starts."
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="Whether records of aborted and open transactions are left out."
    )
    on_truncation: Literal["hold", "earliest", "latest"] = Field(
        default="hold", description="What to do if the log was cut below the group's offset."
    )
    idle_time: Annotated[float, duration(over=True)] = Field(
        default=60.0, description="After so long without a record the processor's on_idle is called."
    )
    shutdown_timeout: Annotated[float, duration()] = Field(
        default=25.0, description="How long a callback may take to finish when the channel stops."
    )
    max_uncommitted_records: Annotated[int, whole(0, 1_000_000_000)] = Field(
        default=10_000,
        description="Records of a partition that may be on their way to the commit when its next batch is handed out: a crash "
        "repeats so many, and the batch in hand. 0: each batch waits for the commit of the one before.",
    )
    on_error: OnErrorConfig = Field(default_factory=OnErrorConfig)
    reader: ReaderConfig = Field(default_factory=ReaderConfig)
    offsets: OffsetsConfig = Field(default_factory=OffsetsConfig)


class SubscriberSettings(ChannelSettings):
    """How the channels of manifests read."""

    workers: Annotated[int, whole(1, 1000)] = Field(
        default=SUBSCRIBERS_WORKERS, description="Threads that run the processor."
    )


class ChannelConfig(ChannelSettings, ChannelTopics):
    """One channel: topics of one group, read by a pool of workers."""

    model_config = ConfigDict(json_schema_extra=_either_or)

    processor: ProcessorConfig = Field(description="The code that gets the batches; or give subscriptions.")
    # Not in repr: what is posted with each event can be secret. Their options are checked in `inbound.subscriptions`.
    subscriptions: Annotated[dict[ChannelName, dict[str, Any]], BeforeValidator(_subscriptions)] = Field(
        default_factory=dict,
        repr=False,
        description="Instead of a processor: subscribers by name, each a consumer group of its own whose events are posted.",
        json_schema_extra={"minProperties": 1},
    )

    @model_validator(mode="before")
    @classmethod
    def _dispatched(cls, value: Any) -> Any:
        if isinstance(value, dict) and "subscriptions" in value and "processor" not in value:
            return {"workers": SUBSCRIBERS_WORKERS, **value, "processor": DISPATCH}
        return value

    @model_validator(mode="after")
    def _check(self) -> ChannelConfig:
        if self.subscriptions and self.processor != DISPATCH:
            raise wrong_at(
                "ChannelConfig", [(("processor",), wrong("give processor or subscriptions, not both"), None)]
            )
        if bool(self.topics) != (self.topics_pattern is not None):
            return self._check_dead_letters()._check_coordinator()
        place, problem = ("topics", "missing; give topics (a list) or topics_pattern (a regular expression)")
        if self.topics:
            place, problem = ("topics_pattern", "give topics or topics_pattern, not both")
        raise wrong_at("ChannelConfig", [((place,), wrong(problem), None)])

    def _check_dead_letters(self) -> ChannelConfig:
        topic = self.on_error.dead_letter_topic
        if topic is not None and (problem := self.circle(topic)) is not None:
            raise wrong_at("ChannelConfig", [(("on_error", "dead_letter_topic"), wrong(problem), None)])
        return self

    def _check_coordinator(self) -> ChannelConfig:
        if not isinstance(self.coordinator, StaticCoordinatorConfig):
            return self
        problems: list[Problem] = []
        for topic in self.coordinator.partitions:
            place, problem = ("coordinator", "partitions", topic), None
            if self.topics_pattern is not None and not chooser((), self.topics_pattern)(topic):
                but = f", which means no topics that begin with {INTERNAL}" if topic.startswith(INTERNAL) else ""
                problem = f"does not match topics_pattern ({shown(self.topics_pattern)}){but}; correct one of the two"
            elif self.topics and topic not in self.topics:
                problem = f"is not read by this channel; need one of its topics: {', '.join(self.topics)}"
            if problem is not None:
                problems.append((place, wrong(problem), None))
        if problems:
            raise wrong_at("ChannelConfig", problems)
        return self
