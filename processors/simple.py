"""The `simple` processor: sends every batch to a list of sinks, and commits before or after that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from inbound.config.values import Problem, duration, rate, wrong, wrong_at
from inbound.errors import PartitionLostError
from inbound.processors.at_least_once import AtLeastOnce
from inbound.processors.at_most_once import AtMostOnce
from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.processors.delivery import Delivery, NamedSink, smaller
from inbound.processors.pacing import Pace
from inbound.processors.sinks.choice import SinkChoice
from inbound.topic_partition import TopicPartition


class SimpleOptions(BaseModel):
    """When to commit, how fast to go, and where events go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["every-batch", "periodic"] = Field(
        default="every-batch", description="commit after each batch that was sent, or once in a `period`"
    )
    period: Annotated[float, duration(over=True)] = Field(
        default=30.0, description="what is sent is committed after this time at the latest; only with `mode: periodic`"
    )
    no_duplication: bool = Field(
        default=False, description="commit first, then send: at most once; only with `mode: every-batch`"
    )
    max_read_rate: Annotated[float, rate()] | None = Field(
        default=None, description="records per second, for all partitions of this process together"
    )
    sinks: tuple[SinkChoice, ...] = Field(min_length=1, description="asked in this order")
    undecodable: Literal["fail", "skip"] = Field(
        default="fail",
        description="a record that is no event, where a sink takes events only: an error (see `on_error`), or a "
        "warning and go on",
    )

    @model_validator(mode="after")
    def _check(self) -> SimpleOptions:
        problems: list[Problem] = []
        if self.mode != "periodic" and "period" in self.model_fields_set:
            problem = f"is used only with mode: periodic, but mode is {self.mode}; change one of the two"
            problems.append((("period",), wrong(problem), None))
        if self.mode == "periodic" and self.no_duplication:
            problem = (
                "cannot be true with mode: periodic, which sends before it commits, so that a crash repeats; "
                "use mode: every-batch, or no_duplication: false"
            )
            problems.append((("no_duplication",), wrong(problem), None))
        if problems:
            raise wrong_at("SimpleOptions", problems)
        return self


class SimpleProcessor(BatchEventProcessor):
    """Sends each batch to its sinks in order, at least once, or with `no_duplication` at most once.

    At least once: a sink that fails at an event ends the batch there, and the next read starts at it. Sinks before it
    get the rest a second time, so put the one that fails first most often at the top.
    """

    Options = SimpleOptions

    @property
    def not_sent(self) -> int:
        return self._delivery.not_sent

    @property
    def max_read_rate(self) -> float | None:
        return self._pace.rate

    def set_max_read_rate(self, per_second: float | None) -> None:
        self._pace.set_rate(per_second)

    def open(self, context: Context) -> None:
        """Open the sinks; if one fails, those before it are closed again and the error is raised."""
        options: SimpleOptions = context.options
        self._period = options.period if options.mode == "periodic" else None
        self._pace = Pace(options.max_read_rate, context.clock)
        self._sinks: list[NamedSink] = []
        with ExitStack() as opened:
            for choice in options.sinks:
                sink = choice.make()
                sink.open(replace(context, options=choice.options))
                opened.callback(sink.close)
                self._sinks.append((choice.type, sink))
            kind = AtMostOnce if options.no_duplication else AtLeastOnce
            self._delivery: Delivery = kind(self._sinks, options.undecodable, context)
            self.commits_first = (
                options.no_duplication
            )  # a batch that is committed is sent before the next one is taken
            opened.callback(self._delivery.close)
            self._opened = opened.pop_all()

    def waits(self) -> Mapping[TopicPartition, tuple[str, str]]:
        return self._pace.waits()

    def close(self) -> None:
        """Close all sinks, the last one first, also when one of them fails."""
        self._opened.close()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        turn = self._pace.turn(batch)
        return self._deferred(batch, turn.bounded(self._delivery.on_next_batch(turn.part)))

    def on_batch_processed(self, batch: Batch) -> None:
        self._delivery.on_batch_processed(batch)

    def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        if isinstance(error, PartitionLostError):
            self._gone(partition)
        return None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        self._gone(partition)
        return None

    def _gone(self, partition: TopicPartition) -> None:
        self._delivery.on_gone(partition)
        self._pace.forget(partition)

    def _deferred(self, batch: Batch, answer: BatchResponse) -> BatchResponse:
        """Put the commit off to the end of the period; what a sink withholds (`next`) stays withheld."""
        if self._period is None or answer.verb is Verb.REVERT:
            return answer
        if answer.verb is Verb.NEXT:
            within = answer.commit_within
            return answer if within is None else replace(answer, commit_within=smaller(within, self._period))
        if answer.offset is not None and answer.offset > batch.next_offset and not answer.skip:
            return answer  # past the batch: the channel refuses it, as it should
        return BatchResponse.next(
            answer.offset, wait=answer.wait, max_bytes=answer.max_bytes, commit_within=self._period
        )
