"""What every implementation of `LogClient` must do about positions that cannot be read on from.

A part of the conformance suite: see `tests/kafka/log_client_conformance.py`.
"""

from __future__ import annotations

from inbound.kafka.base import Poll
from tests.kafka.log_client_stage import Reading, Stage, values


class PositionsConformance:
    """The tests. Each has topics of its own."""

    def test_a_position_that_is_not_in_the_log_is_reported_again_and_again(self, stage: Stage) -> None:
        """Before its first offset or behind its end, until it is read from elsewhere. Others are not held up."""
        before, behind, fine = stage.topic(3)
        for tp in (before, behind, fine):
            stage.publish(tp, values(5))
        stage.trim(before, 3)
        reading = Reading(stage, stage.client())
        reading.client.read({before: 2, behind: 6, fine: 0})
        reading.until((fine, 5))
        for _ in range(2):
            assert reading.rest(before, behind) == Poll(out_of_range={before: 2, behind: 6})
        reading.client.read({before: 3, behind: 0})
        reading.until((before, 2), (behind, 5))
        assert [reading.offsets(tp) for tp in (before, behind, fine)] == [[3, 4], list(range(5)), list(range(5))]
        assert reading.rest() == Poll()

    def test_a_position_behind_the_end_is_reported_also_when_the_log_has_grown_to_it(self, stage: Stage) -> None:
        """What stands there then does not come after what was read: who reads decides whether to read it."""
        (tp,) = stage.topic()
        stage.publish(tp, values(2))
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 4})
        assert reading.until_some() == Poll(out_of_range={tp: 4})
        stage.publish(tp, values(4))
        assert reading.rest(tp) == Poll(out_of_range={tp: 4})
        reading.client.pause([tp])
        assert reading.rest() == Poll()
        reading.client.resume([tp])
        assert reading.rest(tp) == Poll(out_of_range={tp: 4})
        reading.client.read({tp: 4})
        reading.until((tp, 2))
        assert (reading.offsets(tp), reading.rest()) == ([4, 5], Poll())

    def test_who_reads_on_can_have_the_log_compared_with_what_was_read(self, stage: Stage) -> None:
        """By the leader under which that was written: the same log is read on, at its end too, and by another client."""
        (tp,) = stage.topic()
        stage.publish(tp, values(4))
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        reading.until((tp, 4))
        epoch = reading.fetched(tp)[-1].leader_epoch
        assert epoch is not None
        for position in (2, 4):
            again = Reading(stage, stage.client())
            again.client.read({tp: position}, {tp: epoch})
            again.until((tp, 4 - position))
            assert (again.rest(), again.offsets(tp)) == (Poll(), list(range(position, 4)))

    def test_a_log_that_knows_nothing_of_a_leader_is_not_read_on(self, stage: Stage) -> None:
        """It is not the one that was read. Read again without that, it is read; others are not held up."""
        one, other = stage.topic(2)
        for tp in (one, other):
            stage.publish(tp, values(5))
        reading = Reading(stage, stage.client())
        reading.client.read({one: 3, other: 3}, {one: 9})
        reading.until((other, 2))
        told = reading.rest(one)
        assert ({*told.out_of_range, *told.diverged}, reading.offsets(one)) == ({one}, [])
        reading.client.read({one: 3})
        reading.until((one, 2))
        assert (reading.rest(), reading.offsets(one)) == (Poll(), [3, 4])

    def test_a_position_that_is_not_in_the_log_is_not_told_while_it_is_paused_or_forgotten(self, stage: Stage) -> None:
        """Without a question to the brokers."""
        paused, forgotten = stage.topic(2)
        client = stage.client()
        client.read({paused: 1, forgotten: 1})
        client.pause([paused])
        client.forget([forgotten])
        assert Reading(stage, client).rest() == Poll()
