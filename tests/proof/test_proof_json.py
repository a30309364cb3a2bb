"""A proof as JSON and as rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.proof.export import ProofFormatError, from_json, to_json
from inbound.proof.model import ClaimBar, Finding, FormerTopic, PartitionKey, PartitionProof, Proof, Verdict
from inbound.proof.rows import FINDING_COLUMNS, PARTITION_COLUMNS, finding_rows, partition_rows
from inbound.proof.words import KINDS
from tests.proof.made_proof import NOON, finding, partition, proof, repeated

PROOF = proof(partition(0), partition(1, repeated(), finding("lost", 5, 7), verdict=Verdict.ANOMALIES))

numbers = st.integers(0, 2**62)
maybe = st.none() | numbers
texts = st.text(max_size=8)
walls = st.floats(0, 4e9, allow_nan=False)
findings = st.builds(
    Finding,
    kind=st.sampled_from(list(KINDS)),
    epochs=st.lists(numbers, max_size=2).map(tuple),
    consumers=st.lists(texts, max_size=2).map(tuple),
    first=numbers,
    next=numbers,
    cause=texts,
    offsets=maybe,
    times=numbers,
    wall=st.none() | walls,
)
claims = st.builds(
    ClaimBar,
    consumer=texts,
    ending=st.sampled_from(["released", "lost", "fenced", "died", "holds"]),
    **dict.fromkeys(("epoch", "next", "batches", "records"), numbers),
    **dict.fromkeys(("wall", "last_wall"), walls),
    **dict.fromkeys(("position", "landed"), maybe),
)
partitions = st.builds(
    PartitionProof,
    key=st.builds(PartitionKey, texts, texts, numbers),
    verdict=st.sampled_from(list(Verdict)),
    in_flight=st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple),
    findings=st.lists(findings, max_size=2).map(tuple),
    missing=st.lists(texts, max_size=2).map(tuple),
    claims=st.lists(claims, max_size=2).map(tuple),
    handed_out=numbers,
    explained=st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple),
    left_out=st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple),
    former=st.lists(st.builds(FormerTopic, numbers, maybe, maybe, numbers, walls), max_size=2).map(tuple),
    **dict.fromkeys(("start", "proven", "committed", "log_start", "log_end"), maybe),
)
proofs = st.builds(
    Proof,
    mode=st.sampled_from(["quick", "exact"]),
    partitions=st.lists(partitions, max_size=3).map(tuple),
    missing=st.lists(texts, max_size=2).map(tuple),
    writer=texts,
    continued=st.booleans(),
    **dict.fromkeys(("made", "seconds"), walls),
)


@pytest.mark.slow
@given(proofs)
def test_any_proof_comes_back_as_it_was(one: Proof) -> None:
    """Nothing is lost or rounded, for all names."""
    assert from_json(to_json(one).encode()) == one


def test_what_a_program_reads() -> None:
    """Verdict, headline and totals stand at the top; members have the model's names."""
    members = json.loads(to_json(PROOF))

    assert {name: members[name] for name in ("format", "v", "verdict", "headline", "mode", "totals")} == {
        "format": "inbound-proof",
        "v": 1,
        "verdict": "anomalies",
        "headline": "group orders-svc, topic orders: 2 lost in 1 of 2 partitions",
        "mode": "exact",
        "totals": {
            "partitions": 2,
            "proven_offsets": 196_000,
            "handed_out": 196_000,
            "lag": 1_000,
            "in_flight": 400,
            "explained": 0,
            "left_out": 0,
            "offsets": {"lost": 2, "repeated": 400},
        },
    }
    assert members["partitions"][1]["findings"][1] == {
        "kind": "lost",
        "first": 5,
        "next": 7,
        "cause": "host-1 (epoch 3) was at 5",
        "offsets": 2,
        "times": 1,
        "epochs": [3],
        "consumers": ["host-1"],
        "wall": NOON + 1200,
    }


def test_members_of_later_releases_are_ignored() -> None:
    """A proof by a neighbouring release can be gone on from."""
    members = json.loads(to_json(PROOF))
    for place in (
        members,
        members["partitions"][0],
        members["partitions"][1]["findings"][0],
        members["partitions"][0]["claims"][0],
    ):
        place["mood"] = "fine"

    assert from_json(json.dumps(members)) == PROOF


def broken(**changes: Any) -> str:
    members = json.loads(to_json(PROOF))
    return json.dumps({name: value for name, value in (members | changes).items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "old.json: is not JSON (Expecting value: line 1 column 1 (char 0)); name a file that `spark validate` wrote",
        ),
        ("[1]", "old.json: is no proof; name a file that `spark validate` wrote"),
        (broken(format="else"), "old.json: is no proof; name a file that `spark validate` wrote"),
        (broken(v=2), "old.json: has format version 2, this inbound reads up to 1; upgrade inbound"),
        (broken(made=...), "old.json: is damaged, KeyError('made') is wrong in it; run the proof again"),
        (
            broken(partitions=[{"group": "a"}]),
            "old.json: is damaged, KeyError('topic') is wrong in it; run the proof again",
        ),
    ],
)
def test_what_is_no_proof_is_refused(text: str, message: str) -> None:
    """Foreign, damaged and future files are told apart, and named."""
    with pytest.raises(ProofFormatError) as raised:
        from_json(text, "old.json")

    assert str(raised.value) == message


def arrow_type(name: str) -> pa.DataType:
    types = {"string": pa.string(), "int64": pa.int64(), "bool": pa.bool_(), "timestamp": pa.timestamp("us", tz="UTC")}
    return pa.list_(types[name[5:-1]]) if name.startswith("list<") else types[name]


def test_rows_have_the_columns_that_are_promised() -> None:
    """Arrow takes the rows under the schema as it is written down, and gives them back."""
    unknown = partition(2, finding("skipped", 1, 9, None, offsets=None), committed=None, start=None, proven=None)
    one = replace(PROOF, partitions=(*PROOF.partitions, unknown))
    made = {}

    for name, rows, columns in (
        ("partitions", partition_rows(one), PARTITION_COLUMNS),
        ("findings", finding_rows(one), FINDING_COLUMNS),
    ):
        assert [list(row) for row in rows] == [list(columns)] * len(rows)
        schema = pa.schema([(column, arrow_type(kind)) for column, kind in columns.items()])
        made[name] = pa.Table.from_pylist(rows, schema=schema).to_pylist()

    assert [
        (row["verdict"], row["lost"], row["repeated"], row["skipped"], row["lag"]) for row in made["partitions"]
    ] == [
        ("proven", 0, 0, 0, 500),
        ("anomalies", 2, 400, 0, 500),
        ("proven", 0, 0, 8, None),
    ]
    assert [
        (row["kind"], row["anomaly"], row["offsets"], row["wall"] and row["wall"].isoformat())
        for row in made["findings"]
    ] == [
        ("repeated", False, 400, "2025-01-31T12:43:00+00:00"),
        ("lost", True, 2, "2025-01-31T12:20:00+00:00"),
        ("skipped", True, None, None),
    ]
