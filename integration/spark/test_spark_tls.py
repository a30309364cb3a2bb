"""`spark validate` where brokers demand certificates: what the configuration names reaches Spark's own Kafka client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import inbound.embedded.kafka as embedded_kafka
from inbound.cli.shared.files import jar_cache, java_command
from inbound.embedded import EmbeddedCluster
from inbound.embedded.cluster import free_ports
from inbound.spark.kafka_source import inline
from integration.spark.spark_stage import Stage

CERTIFICATES = Path(__file__).parent.parent.parent / "tests" / "certificates"


@pytest.fixture
def secured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[EmbeddedCluster, str]]:
    """A cluster whose broker has a second listener, for clients with a certificate; and that listener's address."""
    (port,) = free_ports(1)
    plain = embedded_kafka.server_properties
    # Java reads keys in this form only; a user's key gets into it by the same function.
    made = inline({"ssl.keystore.location": str(CERTIFICATES / "server.pem")}, lambda path: Path(path).read_text())
    store = tmp_path / "server.pem"
    store.write_text(f"{made['ssl.keystore.key']}\n{made['ssl.keystore.certificate.chain']}\n")

    def properties(index: int, cluster: Sequence[embedded_kafka.KafkaPorts], folder: Path) -> dict[str, str]:
        settings = plain(index, cluster, folder)
        for name in ("listeners", "advertised.listeners"):
            settings[name] += f",SSL://127.0.0.1:{port}"
        settings["listener.security.protocol.map"] += ",SSL:SSL"
        return settings | {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
        }

    monkeypatch.setattr(embedded_kafka, "server_properties", properties)
    with EmbeddedCluster(jars=jar_cache(), java=java_command()) as cluster:
        yield cluster, f"127.0.0.1:{port}"


@pytest.mark.thorough(
    "a cluster of its own; tests/spark/test_spark_pem.py and tests/kafka/test_kafka_access.py decide about Spark's options"
)
@pytest.mark.timeout(900)
def test_certificates_reach_the_executors(
    secured: tuple[EmbeddedCluster, str], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a client's certificate all is proven; without one, not; and no key is ever printed."""
    cluster, address = secured
    stage = Stage(cluster, tmp_path)
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 100).leave()
    trust = (
        f'bootstrap.servers: "{address}", security.protocol: SSL, ssl.truststore.location: {CERTIFICATES / "ca.pem"}'
    )
    stage.write_config(kafka=f"{{{trust}, ssl.keystore.location: {CERTIFICATES / 'client.pem'}}}")

    proven = stage.validate(capsys)
    stage.write_config(kafka=f"{{{trust}}}")
    refused = stage.validate(capsys)
    stage.close()

    assert (proven.code, proven.proof["verdict"]) == (0, "proven"), proven.said
    assert refused.code == 3
    assert "PRIVATE KEY" not in proven.said + refused.said
