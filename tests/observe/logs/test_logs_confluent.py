"""librdkafka's lines are logged by Python, and only where they are configured."""

from __future__ import annotations

import logging

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

from inbound.kafka.confluent.settings import log_settings  # noqa: E402

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


@pytest.mark.slow
def test_lines_of_librdkafka_go_through_our_log(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is not there is an error to it."""
    with caplog.at_level(logging.WARNING, "confluent_kafka"):
        consumer = confluent_kafka.Consumer({**NOWHERE, **log_settings()})
        for _ in range(300):
            if not caplog.records:
                consumer.poll(0.1)
        consumer.close()
    assert {record.name for record in caplog.records} == {"confluent_kafka"}


@pytest.mark.parametrize(
    ("level", "syslog"), [("DEBUG", 7), ("INFO", 6), ("WARNING", 4), ("ERROR", 3), ("CRITICAL", 0)]
)
def test_its_level_is_that_of_its_logger(level: str, syslog: int, caplog: pytest.LogCaptureFixture) -> None:
    """At `critical`, its default level, it does not even make them."""
    with caplog.at_level(level, "confluent_kafka"):
        settings = log_settings()
    assert (settings["log_level"], "logger" in settings) == (syslog, syslog > 0)
