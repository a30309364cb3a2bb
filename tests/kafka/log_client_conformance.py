"""What every implementation of `LogClient` must do: run on the fake in tests/, on a real broker in integration/.

A test class inherits `LogClientConformance` and has a fixture `stage` in its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest

from inbound.coordinators.nodes import canonical
from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import LogRange, Poll, TopicMeta
from inbound.partition.buffer import record_size
from inbound.processors.batch import PlainRecord
from inbound.topic_partition import TopicPartition
from tests.kafka.log_client_positions import PositionsConformance
from tests.kafka.log_client_stage import Headers, Reading, Stage, plain, values


class LogClientConformance(PositionsConformance):
    """The tests. Each has topics of its own."""

    # -- topics ------------------------------------------------------------------------------------------------------

    def test_named_topics_are_described_as_far_as_they_exist(self, stage: Stage) -> None:
        """With the number of their partitions and an id; those that do not exist are left out."""
        one, two, missing = (stage.name(suffix) for suffix in ("one", "two", "missing"))
        client = stage.client()
        stage.create_topic(one, 1)
        stage.create_topic(two, 3)
        found = stage.topics(client, [one, two, missing], None)
        assert {name: meta.partitions for name, meta in found.items()} == {one: 1, two: 3}
        ids = {meta.topic_id for meta in found.values()}
        assert (len(ids - {None}), {canonical(one or "") for one in ids}) == (2, ids)

    def test_a_pattern_matches_whole_names(self, stage: Stage) -> None:
        """For any names that are given beside it."""
        names = [stage.name(suffix) for suffix in ("a1", "a12", "b1")]
        for name in names:
            stage.create_topic(name, 1)
        assert set(stage.topics(stage.client(), [names[2]], stage.name("a."))) == {names[0]}

    def test_no_pattern_means_topics_of_kafka_itself(self, stage: Stage) -> None:
        """`__consumer_offsets`, say: with confluent-kafka `.*` read it."""
        name = stage.name("own")
        own = f"__{name}"
        for topic in (name, own):
            stage.create_topic(topic, 1)
        client = stage.client()
        found = stage.topics(client, [own], ".*")
        assert (name in found, [topic for topic in found if topic.startswith("__")]) == (True, [])
        assert set(stage.topics(client, [own], None)) == {own}

    def test_added_partitions_are_seen_and_the_topic_stays_the_same(self, stage: Stage) -> None:
        """Its id is still the one that it was created with."""
        client, name = stage.client(), stage.topic(1)[0].topic
        before = stage.topics(client, [name], None)[name]
        stage.add_partitions(name, 3)
        assert stage.topics(client, [name], None) == {name: TopicMeta(3, before.topic_id)}

    def test_a_deleted_topic_is_left_out_and_recreated_it_has_another_id(self, stage: Stage) -> None:
        """Its name proves nothing."""
        client, name = stage.client(), stage.topic(2)[0].topic
        before = stage.topics(client, [name], None)[name]
        stage.delete_topic(name)
        assert stage.topics(client, [name], None) == {}
        stage.create_topic(name, 1)
        after = stage.topics(client, [name], None)[name]
        assert (before.partitions, after.partitions, before.topic_id == after.topic_id) == (2, 1, False)

    # -- the logs' limits --------------------------------------------------------------------------------------------

    def test_a_log_reaches_from_its_first_offset_up_to_the_one_that_comes_next(self, stage: Stage) -> None:
        """Empty, filled, begun later, emptied, and with offsets at its end that no record has."""
        empty, filled, trimmed, emptied, aborted = partitions = stage.topic(5)
        for tp in partitions[1:]:
            stage.publish(tp, values(4))
        stage.trim(trimmed, 3)
        stage.trim(emptied, 4)
        stage.publish_aborted(aborted, values(2))
        assert stage.ranges(stage.client(), partitions) == {
            empty: LogRange(0, 0),
            filled: LogRange(0, 4),
            trimmed: LogRange(3, 4),
            emptied: LogRange(4, 4),
            aborted: LogRange(0, 7),
        }

    def test_the_limits_of_unknown_partitions_are_left_out(self, stage: Stage) -> None:
        """They hold up no others."""
        (tp,) = stage.topic()
        client = stage.client()
        stage.ranges(client, [tp])
        unknown = [tp._replace(partition=1), TopicPartition(stage.name("missing"), 0)]
        found: dict[TopicPartition, LogRange] = {}

        def known() -> bool:
            found.update(client.log_ranges([tp, *unknown]))
            return tp in found

        stage.until(known)
        for _ in stage.turns(1.5):
            known()
        assert found == {tp: LogRange(0, 0)}

    def test_the_limits_are_those_of_now(self, stage: Stage) -> None:
        """Also of a topic that was created after the client connected, and that was not asked for yet."""
        client = stage.client()
        stage.topics(client, [], None)
        (tp,) = stage.topic()
        assert stage.ranges(client, [tp]) == {tp: LogRange(0, 0)}
        stage.publish(tp, values(2))
        assert stage.ranges(client, [tp]) == {tp: LogRange(0, 2)}

    # -- times -------------------------------------------------------------------------------------------------------

    def test_a_time_begins_with_the_first_record_of_it_or_later(self, stage: Stage) -> None:
        """On the record, between two, behind the last; not with one that retention has deleted, nor in an empty log."""
        empty, filled = stage.topic(2)
        stage.publish(filled, [b"deleted"], timestamp=500)
        stage.publish(filled, [b"first"], timestamp=1000)
        stage.publish(filled, [b"second"], timestamp=2000)
        stage.trim(filled, 1)
        client = stage.client()
        begins = {time: client.offsets_at([empty, filled], time) for time in (0, 1000, 1001, 2000, 2001)}
        expected = {0: 1, 1000: 1, 1001: 2, 2000: 2, 2001: None}
        assert begins == {time: {empty: None, filled: offset} for time, offset in expected.items()}

    def test_where_a_time_begins_is_not_guessed_while_nobody_answers(self, stage: Stage) -> None:
        """That there is no record of that time is an answer; silence is none."""
        (tp,) = stage.topic()
        stage.publish(tp, [b"one"], timestamp=1000)
        client = stage.client()
        assert client.offsets_at([tp], 1000) == {tp: 0}
        stage.outage()
        with pytest.raises(BrokerUnavailableError):
            client.offsets_at([tp], 1000)
        stage.outage_over()

    # -- reading -----------------------------------------------------------------------------------------------------

    def test_records_come_in_order_from_exactly_the_position(self, stage: Stage) -> None:
        """Also from the midst of a batch. What they leave to be read is nothing."""
        positions = dict(zip(stage.topic(3), (0, 3, 9), strict=True))
        for tp in positions:
            stage.publish(tp, values(10))
        reading = Reading(stage, stage.client())
        reading.client.read(positions)
        reading.until(*((tp, 10 - position) for tp, position in positions.items()))
        for tp, position in positions.items():
            last = reading.fetched(tp)[-1]
            assert reading.offsets(tp) == list(range(position, 10))
            assert (last.next_offset, last.high_watermark) == (10, 10)

    def test_a_poll_tells_where_it_stands(self, stage: Stage) -> None:
        """After part of what there is, the next offset is that of the next record; the high watermark is the log's end."""
        (tp,) = stage.topic()
        stage.publish(tp, values(7))
        reading = Reading(stage, stage.client(max_poll_records=3))
        reading.client.read({tp: 0})
        reading.until((tp, 7))
        brought = [([r.offset for r in f.records], f.next_offset, f.high_watermark) for f in reading.fetched(tp)]
        assert brought == [([0, 1, 2], 3, 7), ([3, 4, 5], 6, 7), ([6], 7, 7)]

    def test_the_end_is_in_the_log_and_what_is_published_later_arrives(self, stage: Stage) -> None:
        """Who has read everything waits, and is not out of range."""
        (tp,) = stage.topic()
        stage.publish(tp, values(2))
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 2})
        assert reading.rest() == Poll()
        for count in (1, 2):
            stage.publish(tp, values(1))
            reading.until((tp, count))
        assert reading.offsets(tp) == [2, 3]

    def test_a_record_comes_with_all_its_fields(self, stage: Stage) -> None:
        """Headers in their order, repeated ones too, without a value too; a tombstone; no key; empty is not absent."""
        (tp,) = stage.topic()
        headers: Headers = [("b", b"1"), ("a", b"\xff"), ("b", b"2"), ("none", None), ("empty", b""), ("Ä", b"3")]
        stage.publish(tp, [b"\x00\xff"], key=b"\xfe", headers=headers, timestamp=1_700_000_000_123)
        stage.publish(tp, [None], key=b"k", timestamp=1)
        stage.publish(tp, [b"v", b""], timestamp=2)
        stage.publish(tp, [b"v"], key=b"", timestamp=3)
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        reading.until((tp, 5))
        assert [plain(record) for record in reading.records(tp)] == [
            PlainRecord(0, 1_700_000_000_123, b"\xfe", b"\x00\xff", headers),
            PlainRecord(1, 1, b"k", None, []),
            PlainRecord(2, 2, None, b"v", []),
            PlainRecord(3, 2, None, b"", []),
            PlainRecord(4, 3, b"", b"v", []),
        ]

    def test_the_size_is_that_of_keys_values_and_headers(self, stage: Stage) -> None:
        """What is absent counts nothing, and does not make up for what is there."""
        (tp,) = stage.topic()
        stage.publish(tp, [b"12345", None, b""])
        stage.publish(tp, [b"12"], key=b"123", headers=[("n", b"1"), ("n", None)])
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        reading.until((tp, 4))
        assert sum(fetched.size for fetched in reading.fetched(tp)) == sum(map(record_size, reading.records(tp))) == 13

    # -- offsets without a record ------------------------------------------------------------------------------------

    def test_reading_goes_on_past_offsets_without_a_record(self, stage: Stage) -> None:
        """At the log's begin, in its midst, and at its end, where the next offset is behind them all."""
        (tp,) = stage.topic()
        stage.publish_aborted(tp, values(2))  # 0 to 2
        stage.publish(tp, values(2))  # 3, 4
        stage.publish_committed(tp, values(2))  # 5 to 7
        stage.publish(tp, values(1))  # 8
        stage.publish_aborted(tp, values(3))  # 9 to 12
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        reading.until((tp, 5))
        last = reading.fetched(tp)[-1]
        assert reading.offsets(tp) == [3, 4, 5, 6, 8]
        assert (last.next_offset, last.high_watermark) == (13, 13)

    def test_offsets_without_a_record_alone_bring_nothing_until_a_record_is_behind_them(self, stage: Stage) -> None:
        """Neither from before them, nor from their midst; a position in there is in the log."""
        positions = dict(zip(stage.topic(3), (2, 3, 6), strict=True))
        for tp in positions:
            stage.publish(tp, values(2))
            stage.publish_aborted(tp, values(4))  # 2 to 6
        reading = Reading(stage, stage.client())
        reading.client.read(positions)
        assert reading.rest() == Poll()
        for tp in positions:
            stage.publish(tp, values(1))
        reading.until(*((tp, 1) for tp in positions))
        assert [(reading.offsets(tp), reading.fetched(tp)[0].next_offset) for tp in positions] == [([7], 8)] * 3

    # -- reading elsewhere -------------------------------------------------------------------------------------------

    def test_read_from_another_position_discards_what_was_prefetched(self, stage: Stage) -> None:
        """Backwards, forwards, and at the place where it stands anyway."""
        (tp,) = stage.topic()
        stage.publish(tp, values(8))
        for position in (0, 1, 3, 5):
            reading = Reading(stage, stage.client(max_poll_records=3))
            reading.client.read({tp: 0})
            reading.until((tp, 6))
            reading.client.read({tp: position})
            reading.until((tp, 6 + 8 - position))
            assert reading.offsets(tp) == [*range(6), *range(position, 8)]
            assert [fetched.next_offset for fetched in reading.fetched(tp)] == [
                fetched.records[-1].offset + 1 for fetched in reading.fetched(tp)
            ]

    def test_what_was_prefetched_of_a_deleted_topic_is_not_taken_for_the_new_one(self, stage: Stage) -> None:
        """Though its offsets are the same."""
        (tp,) = stage.topic()
        stage.publish(tp, [b"old"] * 4)
        client = stage.client(max_poll_records=2)
        reading = Reading(stage, client)
        client.read({tp: 0})
        reading.until((tp, 2))
        client.pause([tp])
        reading.rest()
        stage.delete_topic(tp.topic)
        stage.create_topic(tp.topic, 1)
        stage.publish(tp, [b"new"] * 4)
        client.forget([tp])
        client.read({tp: 2})
        reading.until((tp, 4))
        assert [record.value for record in reading.records(tp)] == [b"old"] * 2 + [b"new"] * 2

    def test_a_newly_read_partition_does_not_disturb_the_others(self, stage: Stage) -> None:
        """Nor does one that is read from elsewhere: they go on where they were."""
        one, two, three = stage.topic(3)
        for tp in (one, two, three):
            stage.publish(tp, values(9))
        reading = Reading(stage, stage.client(max_poll_records=4))
        reading.client.read({one: 0})
        reading.until((one, 4))
        reading.client.read({two: 5})
        reading.until((two, 1))
        reading.client.read({two: 0, three: 8})
        reading.until((one, 9), (two, 9), (three, 1))
        reading.rest()
        assert (reading.offsets(one), reading.offsets(three)) == (list(range(9)), [8])
        assert reading.offsets(two)[-9:] == list(range(9))

    def test_a_forgotten_partition_brings_nothing_more(self, stage: Stage) -> None:
        """Also not what was prefetched; the others go on, and it may be read again from anywhere."""
        one, two = stage.topic(2)
        for tp in (one, two):
            stage.publish(tp, values(9))
        reading = Reading(stage, stage.client(max_poll_records=4))
        reading.client.read({one: 0})
        reading.until((one, 4))
        reading.client.read({two: 0})
        reading.client.forget([one])
        reading.until((two, 9))
        reading.rest()
        assert (reading.offsets(one), reading.offsets(two)) == ([0, 1, 2, 3], list(range(9)))
        reading.client.read({one: 6})
        reading.until((one, 7))
        assert reading.offsets(one)[4:] == [6, 7, 8]

    # -- pause -------------------------------------------------------------------------------------------------------

    def test_a_paused_partition_brings_nothing_and_goes_on_exactly_there(self, stage: Stage) -> None:
        """Nothing is lost and nothing comes twice: with some prefetched, and with all brought."""
        for at_a_time, tp in zip((3, 100), stage.topic(2), strict=True):
            stage.publish(tp, values(8))
            reading = Reading(stage, stage.client(max_poll_records=at_a_time))
            reading.client.read({tp: 0})
            reading.until((tp, min(8, at_a_time)))
            before = reading.offsets(tp)
            reading.client.pause([tp])
            stage.publish(tp, values(2))
            assert (reading.rest(), reading.offsets(tp)) == (Poll(), before)
            reading.client.resume([tp])
            reading.until((tp, 10))
            assert reading.offsets(tp) == list(range(10))

    def test_a_resumed_partition_goes_on_after_what_others_brought(self, stage: Stage) -> None:
        """Two were paused in the midst of what was prefetched, and a third one was read to its end."""
        one, two, three = partitions = stage.topic(3)
        for tp in partitions:
            stage.publish(tp, values(10))
        reading = Reading(stage, stage.client(max_poll_records=4))
        for tp in (one, two):
            reading.client.read({tp: 0})
            reading.until((tp, 4))
            reading.client.pause([tp])
            reading.rest()
        reading.client.read({three: 0})
        reading.until((three, 10))
        reading.client.resume([one, two])
        reading.until((one, 10), (two, 10))
        assert [reading.offsets(tp) for tp in partitions] == [list(range(10))] * 3

    def test_a_paused_partition_that_is_read_again_is_not_paused(self, stage: Stage) -> None:
        """Nor is one that was forgotten while it was paused."""
        again, forgotten = stage.topic(2)
        client = stage.client()
        reading = Reading(stage, client)
        for tp in (again, forgotten):
            stage.publish(tp, values(3))
        client.read({again: 0, forgotten: 0})
        client.pause([again, forgotten])
        client.forget([forgotten])
        assert reading.rest() == Poll()
        client.read({again: 1, forgotten: 2})
        reading.until((again, 2), (forgotten, 1))
        assert (reading.offsets(again), reading.offsets(forgotten)) == ([1, 2], [2])

    def test_what_is_not_read_can_be_neither_paused_nor_resumed_nor_forgotten(self, stage: Stage) -> None:
        """That is a mistake of the caller."""
        (tp,) = stage.topic()
        client = stage.client()
        for verb in (client.pause, client.resume, client.forget):
            with pytest.raises(KeyError):
                verb([tp])

    # -- how much at once --------------------------------------------------------------------------------------------

    def test_one_poll_brings_no_more_of_a_partition_than_the_limit(self, stage: Stage) -> None:
        """Unless a single record is larger: it comes alone, and what follows it comes too."""
        large, small = stage.topic(2)
        stage.publish(large, [bytes(100), bytes(5000), bytes(100)], batched=False)
        stage.publish(small, [bytes(600)] * 6, batched=False)
        client = stage.client()
        client.limit_fetches(2000)
        reading = Reading(stage, client)
        client.read({large: 0, small: 0})
        reading.until((large, 3), (small, 6))
        assert (reading.offsets(large), reading.offsets(small)) == ([0, 1, 2], list(range(6)))
        assert [f.size for f in reading.fetched(large)] == [100, 5000, 100]
        assert max(f.size for f in reading.fetched(small)) <= 2000

    # -- topics that come and go -------------------------------------------------------------------------------------

    def test_a_partition_can_be_read_before_it_exists(self, stage: Stage) -> None:
        """Nothing comes, and nothing is out of range; once it is there it is read."""
        tp = TopicPartition(stage.name("topic"), 0)
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        assert reading.rest() == Poll()
        stage.create_topic(tp.topic, 1)
        stage.publish(tp, values(2))
        reading.until((tp, 2))
        assert reading.offsets(tp) == [0, 1]

    def test_a_recreated_topic_is_read_on_at_the_old_position(self, stage: Stage) -> None:
        """Topics are read by their names: who reads has to compare ids. While it is away nothing comes."""
        (tp,) = stage.topic()
        stage.publish(tp, values(2))
        reading = Reading(stage, stage.client())
        reading.client.read({tp: 0})
        reading.until((tp, 2))
        stage.delete_topic(tp.topic)
        assert reading.rest() == Poll()
        stage.create_topic(tp.topic, 1)
        stage.publish(tp, [b"a", b"b", b"c"])
        reading.until((tp, 3))
        assert plain(reading.records(tp)[-1])[3] == b"c"
        assert reading.offsets(tp) == [0, 1, 2]

    # -- clients and brokers -----------------------------------------------------------------------------------------

    def test_two_clients_do_not_disturb_each_other(self, stage: Stage) -> None:
        """Each has its own positions, independent of the other's."""
        (tp,) = stage.topic()
        stage.publish(tp, values(6))
        a, b = (Reading(stage, stage.client(max_poll_records=2)) for _ in range(2))
        a.client.read({tp: 0})
        b.client.read({tp: 3})
        a.until((tp, 2))
        b.until((tp, 1))
        b.client.pause([tp])
        a.until((tp, 4))
        b.client.close()
        a.until((tp, 6))
        assert (a.offsets(tp), b.offsets(tp)[0]) == (list(range(6)), 3)

    def test_a_closed_client_can_be_closed_again(self, stage: Stage) -> None:
        """With or without something to read."""
        (tp,) = stage.topic()
        idle, busy = stage.client(), stage.client()
        busy.read({tp: 0})
        busy.poll(0.0)
        for client in (idle, busy, idle, busy):
            client.close()

    def test_an_outage_is_reported_and_reading_goes_on_after_it(self, stage: Stage) -> None:
        """Polls bring nothing until then, or report unavailable brokers; afterwards nothing was lost and nothing comes twice."""
        (tp,) = stage.topic()
        stage.publish(tp, values(5))
        client = stage.client(max_poll_records=2)
        reading = Reading(stage, client)
        client.read({tp: 0})
        reading.until((tp, 5))
        told = stage.topics(client, [tp.topic], None)
        assert client.reachable()
        stage.outage()

        def answer() -> Mapping[str, TopicMeta] | None:
            with suppress(BrokerUnavailableError):
                reading.poll()
            with suppress(BrokerUnavailableError):
                return client.topics([tp.topic], None)
            return None

        stage.until(lambda: answer() is None)
        assert (client.reachable(), client.log_ranges([tp]), len(reading.records(tp))) == (False, {}, 5)
        stage.outage_over()
        stage.until(lambda: answer() == told and client.reachable())
        stage.publish(tp, values(2))
        reading.until((tp, 7))
        assert reading.offsets(tp) == list(range(7))
