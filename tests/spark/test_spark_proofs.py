"""What outlives a proof: its files, and up to where all is proven."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest

from inbound.proof.export import from_json
from inbound.proof.model import PartitionKey, Verdict
from inbound.spark.proofs import Proven, ProvenError, moved_on, read_proven, write_proof, write_proven
from tests.proof.made_proof import finding, partition, proof

KEY = PartitionKey("orders-svc", "orders", 0)


def test_a_proof_is_written_in_all_its_forms_and_may_be_written_again(tmp_path: Path) -> None:
    """JSON reads back as it was, the tables have their rows, nothing else is left in the folder."""
    folder = tmp_path / "out" / "proof"
    bad = proof(partition(0), partition(1, finding("lost", 10, 20), verdict=Verdict.ANOMALIES))
    write_proof(folder, proof(partition(0)))

    write_proof(folder, bad)

    assert from_json((folder / "proof.json").read_text()) == bad
    assert pyarrow.parquet.read_table(folder / "partitions.parquet")["verdict"].to_pylist() == ["proven", "anomalies"]
    assert pyarrow.parquet.read_table(folder / "findings.parquet")["kind"].to_pylist() == ["lost"]
    assert {path.name for path in folder.iterdir()} == {
        "proof.json", "proof.html", "findings.parquet", "partitions.parquet",
    }  # fmt: skip


def test_only_what_an_exact_proof_has_proven_moves_on() -> None:
    """Partition 1 has an anomaly, and a quick proof moves nothing."""
    before = {KEY: Proven(5, "id", 1.0), PartitionKey("orders-svc", "orders", 1): Proven(7, "id", 1.0)}
    made = proof(partition(0, proven=90), partition(1, verdict=Verdict.ANOMALIES), made=2.0)
    quick = proof(partition(0, proven=90), mode="quick")

    assert moved_on(before, made, {"orders": "new"}) == {**before, KEY: Proven(90, "new", 2.0)}
    assert moved_on(before, quick, {}) == before


def test_what_is_proven_reads_back(tmp_path: Path) -> None:
    """Under the group's name, with all its characters."""
    path = tmp_path / "proofs" / "g.json"
    proven = {KEY: Proven(5, None, 1.5)}

    write_proven(path, "orders-svc", proven)

    assert read_proven(path, "orders-svc") == proven
    assert read_proven(tmp_path / "none.json", "orders-svc") == {}
    with pytest.raises(ProvenError, match="is of group orders-svc, not of other"):
        read_proven(path, "other")
