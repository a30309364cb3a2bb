"""One channel: its topics, coordinator, reader and processor."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from inbound.config.units import MIB, format_size, shown
from inbound.config.values import (
    MODULE_CLASS,
    ChannelName,
    OutsideText,
    PathPart,
    StrictModel,
    TopicName,
    duration,
    entries,
    is_label,
    is_module_class,
    mapping,
    matching,
    need_text,
    not_empty,
    refuse,
    size,
    text,
    text_that,
    topic_name,
    whole,
    wrong,
    wrong_at,
)
from inbound.runtime.patterns import INTERNAL, chooser

SHIPPED = ("dynamic", "fixed-count", "static")
_TYPES = f"need one of {', '.join(SHIPPED)}, or module:Class"

#: Kafka counts partitions in 32 bits.
_HIGHEST = 2**31 - 1
_NUMBERS: dict[str, Any] = {
    "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": _HIGHEST}, "minItems": 1, "uniqueItems": True
}  # fmt: skip


class DynamicCoordinatorConfig(StrictModel):
    """Each member of the group takes an even share of the partitions."""

    type: Literal["dynamic"] = "dynamic"


class FixedCountCoordinatorConfig(StrictModel):
    """This member takes at most `count` partitions of each topic."""

    type: Literal["fixed-count"] = "fixed-count"
    count: Annotated[int, whole(1)] = Field(description="Partitions of each topic that this member takes.")


def _numbers(value: Any) -> Any:
    given = [OutsideText(part) for part in entries(value)] if isinstance(value, OutsideText) else value
    if not isinstance(given, (list, tuple)):
        raise wrong(f"need a list such as [0, 1], got {shown(value)}")
    return given


def _each_once(numbers: tuple[int, ...]) -> tuple[int, ...]:
    places = enumerate(numbers)
    refuse("partitions", *((numbers.index(n) < at, (at,), f"lists {n} twice; keep one") for at, n in places))
    return numbers


PartitionNumbers = Annotated[
    tuple[Annotated[int, whole(0, _HIGHEST)], ...],
    BeforeValidator(_numbers),
    not_empty("need at least one partition such as [0, 1], got an empty list"),
    AfterValidator(_each_once),
    WithJsonSchema(_NUMBERS),
]


class StaticCoordinatorConfig(StrictModel):
    """This member takes the listed partitions, and no others."""

    type: Literal["static"] = "static"
    partitions: Annotated[
        dict[TopicName, PartitionNumbers],
        mapping("a mapping such as {orders: [0, 1]}"),
        not_empty("need the partitions of at least one topic, such as {orders: [0, 1]}, got an empty mapping"),
    ] = Field(
        description="Numbers of the partitions that this member takes, by topic.",
        json_schema_extra={"minProperties": 1},
    )


class CustomCoordinatorConfig(StrictModel):
    """A coordinator class of your own."""

    type: str = Field(description="module:Class of a ZkCoordinator.", pattern=r"^[^:]+:[^:]+$")
    # Not in repr: options can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own settings, checked by the class's `Options` model."
    )


def _known(value: Any) -> Any:
    """Refuse an unknown type with an error that lists the known ones."""
    if not isinstance(value, Mapping) or not value:
        return value  # the model's error asks for a mapping; an empty one is all defaults
    kind = value.get("type")
    if isinstance(kind, str) and (kind in SHIPPED or is_module_class(kind)):
        return value
    if "type" not in value:
        problem = wrong(f"{_TYPES}, got nothing")
    elif not isinstance(kind, str):
        problem = need_text(kind)
    else:
        near = get_close_matches(kind.lower(), SHIPPED, n=1)
        problem = wrong(f"{_TYPES}, got {shown(kind)}" + (f"; did you mean {near[0]}?" if near else ""))
    raise wrong_at("coordinator", [(("type",), problem, kind)])


def _tag(value: Any) -> str:
    kind = value.get("type", "dynamic") if isinstance(value, Mapping) else getattr(value, "type", "dynamic")
    return kind if kind in SHIPPED else "custom"


CoordinatorConfig = Annotated[
    Annotated[DynamicCoordinatorConfig, Tag("dynamic")]
    | Annotated[FixedCountCoordinatorConfig, Tag("fixed-count")]
    | Annotated[StaticCoordinatorConfig, Tag("static")]
    | Annotated[CustomCoordinatorConfig, Tag("custom")],
    Discriminator(_tag),
    BeforeValidator(_known),
]


class OffsetsConfig(StrictModel):
    """Where a channel's offsets go besides ZooKeeper, which stays authoritative."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"mirror": {"const": "kafka"}}, "required": ["mirror"]},
            "else": {"properties": {"group": {"type": "null"}}},
        }
    )

    mirror: Literal["none", "kafka"] = Field(
        default="none",
        description="Whether commits also go to a Kafka group, for kafka-consumer-groups and lag exporters.",
    )
    group: Annotated[str, text_that(is_label, "the name of a Kafka group, without blanks around it")] | None = Field(
        default=None,
        description="Name of that Kafka group; the channel's group if not given. Only with `mirror: kafka`.",
    )

    @model_validator(mode="after")
    def _check(self) -> OffsetsConfig:
        only = "is used only with mirror: kafka, but mirror is none; change one of the two"
        refuse("OffsetsConfig", (self.group is not None and self.mirror == "none", "group", only))
        return self

    def kafka_group(self, group: str) -> str | None:
        """Return the Kafka group that mirrors offsets of `group`; None: no mirror."""
        return (self.group or group) if self.mirror == "kafka" else None


_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def _topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    for topic, count in Counter(topics).items():
        if count > 1:
            raise wrong(f"lists {shown(topic)} twice; keep one")
    return topics


def _topics_schema(schema: dict[str, Any]) -> None:
    del schema["default"]  # empty, which may not be written
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


def _is_processor(name: str) -> bool:
    return is_module_class(name) or re.fullmatch(_NAME, name) is not None


class OnErrorConfig(StrictModel):
    """What happens to a batch that the processor cannot handle."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"then": {"const": "dead-letter"}}, "required": ["then"]},
            "then": {"properties": {"dead_letter_topic": {"type": "string"}}, "required": ["dead_letter_topic"]},
            "else": {"properties": {"dead_letter_topic": {"type": "null"}}},
        }
    )

    max_attempts: Annotated[int, whole(0)] = Field(
        default=10, description="How often a batch is tried before `then` applies; 0: without limit."
    )
    then: Literal["hold", "skip", "dead-letter"] = Field(
        default="hold",
        description="Keep the partition waiting, go on after the batch, or send it to `dead_letter_topic`.",
    )
    dead_letter_topic: Annotated[str, BeforeValidator(topic_name)] | None = Field(
        default=None,
        description="Topic for the records that are given up; only with `then: dead-letter`, and no topic that the channel reads.",
    )

    @model_validator(mode="after")
    def _check(self) -> OnErrorConfig:
        only = f"is used only with then: dead-letter, but then is {self.then}; change one of the two"
        given, wanted = self.dead_letter_topic is not None, self.then == "dead-letter"
        refuse(
            "OnErrorConfig",
            (wanted and not given, "dead_letter_topic", "needs a topic, because then is dead-letter"),
            (given and not wanted, "dead_letter_topic", only),
        )
        return self


class ReaderConfig(StrictModel):
    """How records are fetched, and how many make a batch."""

    client: Literal["kafka-python", "confluent-kafka"] = Field(
        default="kafka-python", description="The Kafka client to read with; confluent-kafka is faster, and an extra."
    )
    # The bounds are librdkafka's for the size and wait of a fetch; Kafka's protocol allows more.
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
        default=64 * MIB, description="Decoded bytes that wait in memory, for the whole channel."
    )
    max_decompressed_bytes: Annotated[int, size(1)] = Field(
        default=64 * MIB,
        description="Bytes that a producer's batch may have after decompression; the partition is held at a larger one. "
        "With kafka-python; librdkafka bounds zstd alone (SECURITY.md).",
    )
    idle_wait: Annotated[float, duration(at_most=300.0, over=True)] = Field(
        default=0.1, description="How long a partition with nothing to read waits."
    )

    @model_validator(mode="after")
    def _check(self) -> ReaderConfig:
        batch, largest, prefetch = map(format_size, (self.batch_bytes, self.max_batch_bytes, self.prefetch_bytes))
        need = f"need at least batch_bytes ({batch})"
        refuse(
            "ReaderConfig",
            (self.max_batch_bytes < self.batch_bytes, "max_batch_bytes", f"{need}, got {largest}"),
            (self.prefetch_bytes < self.batch_bytes, "prefetch_bytes", f"{need}, got {prefetch}"),
        )
        return self


class ProcessorConfig(StrictModel):
    """The code that handles the batches."""

    type: Annotated[
        str,
        text_that(_is_processor, "the name of a processor, or module:Class"),
        matching(f"({_NAME}|{MODULE_CLASS})"),
    ] = Field(description="Name of an installed processor, or module:Class.")
    # Not in repr: options can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own settings, checked by the processor's `Options` model."
    )


#: The processor of a channel with subscriptions, and its default `workers`: they do not wait for answers.
DISPATCH = ProcessorConfig(type="dispatch")
SUBSCRIBERS_WORKERS = 1


def _either_or(schema: dict[str, Any]) -> None:
    """Require one of two keys in the JSON Schema, as `_check` does."""
    schema["required"].remove("processor")
    schema["oneOf"] = [
        {"required": ["topics"]},
        {"required": ["topics_pattern"], "properties": {"topics_pattern": {"type": "string"}}},
    ]
    pair = ("processor", "subscriptions")
    schema["anyOf"] = [{"required": [one], "not": {"required": [other]}} for one, other in (pair, pair[::-1])]


class ChannelTopics(StrictModel):
    """What a channel reads, and in whose name."""

    topics: Annotated[
        tuple[TopicName, ...],
        BeforeValidator(entries),
        not_empty("need at least one topic, got an empty list"),
        AfterValidator(_topics),
    ] = Field(
        default=(),
        description="Topics to read; or give topics_pattern.",
        json_schema_extra=_topics_schema,
    )
    topics_pattern: Annotated[str, BeforeValidator(regular_expression)] | None = Field(
        default=None,
        description="Regular expression; every topic whose whole name matches is read, except Kafka's own (`__...`) and the "
        "ledger's. Or give topics.",
    )
    group: PathPart = Field(description="Name of the group that shares the partitions and the offsets.")

    def circle(self, topic: str) -> str | None:
        """Return why dead letters sent to `topic` would come back; or None."""
        if not chooser(self.topics, self.topics_pattern)(topic):
            return None
        read = (
            f"topics: {', '.join(self.topics)}"
            if self.topics_pattern is None
            else f"topics_pattern {self.topics_pattern}"
        )
        return (
            f"{topic} is read by this channel ({read}); a record that fails would go round without end; choose a topic that it "
            "does not read"
        )


class ChannelSettings(StrictModel):
    """How a channel reads: settings that do not depend on its topics."""

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
        default="earliest", description="Where a group without an offset starts."
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
        description="Answered records of a partition whose commit may be on its way when the next batch is delivered: a crash "
        "redelivers these, and the batch being processed. 0: each batch waits for the commit of the one before.",
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

    processor: ProcessorConfig = Field(description="The code that handles the batches; or give subscriptions.")
    # Not in repr: headers posted with each event can be secret. `inbound.plan.subscriptions` checks the options.
    subscriptions: Annotated[
        dict[ChannelName, dict[str, Any]],
        mapping("a mapping of names to subscribers"),
        not_empty("need at least one subscription, or a processor instead"),
    ] = Field(
        default_factory=dict,
        repr=False,
        description="Instead of a processor: subscribers by name; each is its own consumer group, and events are posted to it.",
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
        refuse(
            "ChannelConfig",
            (
                self.subscriptions and self.processor != DISPATCH,
                "processor",
                "give processor or subscriptions, not both",
            ),
        )
        refuse(
            "ChannelConfig",
            (
                not self.topics and self.topics_pattern is None,
                "topics",
                "missing; give topics (a list) or topics_pattern (a regular expression)",
            ),
            (
                self.topics and self.topics_pattern is not None,
                "topics_pattern",
                "give topics or topics_pattern, not both",
            ),
        )
        topic = self.on_error.dead_letter_topic
        circle = None if topic is None else self.circle(topic)
        refuse("ChannelConfig", (circle, ("on_error", "dead_letter_topic"), circle or ""))
        if isinstance(self.coordinator, StaticCoordinatorConfig):
            found = [(topic, self._unread(topic)) for topic in self.coordinator.partitions]
            refuse(
                "ChannelConfig",
                *((problem, ("coordinator", "partitions", topic), problem or "") for topic, problem in found),
            )
        return self

    def _unread(self, topic: str) -> str | None:
        """Return why this channel does not read a topic; None: it does."""
        if self.topics_pattern is not None and not chooser((), self.topics_pattern)(topic):
            but = f", which means no topics that begin with {INTERNAL}" if topic.startswith(INTERNAL) else ""
            return f"does not match topics_pattern ({shown(self.topics_pattern)}){but}; correct one of the two"
        if self.topics and topic not in self.topics:
            return f"is not read by this channel; need one of its topics: {', '.join(self.topics)}"
        return None
