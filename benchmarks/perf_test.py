"""Fills topics with Kafka's own producer-perf-test."""

from __future__ import annotations

import subprocess
import time

from inbound.cli.shared.files import jar_cache, java_command
from tests.embedded.more_jars import fetch_tools


def fill(bootstrap: str, topic: str, records: int, size: int = 100) -> float:
    """Publish so many records of `size` bytes without keys, as fast as it goes. Returns the seconds it took."""
    java = java_command()
    folders = fetch_tools(jar_cache(), java=java)
    began = time.monotonic()
    done = subprocess.run(
        [
            *(java, "-Xmx512m", "-cp", ":".join(f"{folder}/*" for folder in folders)),
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records)),
            *("--record-size", str(size), "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=1", "linger.ms=5", "batch.size=65536"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or f"{records} records sent" not in done.stdout:
        raise SystemExit(f"{topic}: producer-perf-test failed: {done.stderr[-500:] or done.stdout[-500:]}")
    return time.monotonic() - began
