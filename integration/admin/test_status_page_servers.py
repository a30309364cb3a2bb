"""The status page of real processes on real servers: stalled partitions show their cause, and the buttons work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from integration.admin.browser import Browser
from integration.admin.status_scene import TOKEN
from integration.admin.test_status_page import ANSWER, ROWS, TITLE, press, shows, typed
from integration.observe.explain.explaining import Stage
from integration.observe.explain.plants import UNREACHABLE
from tests.waiting import until

PROCESSOR = """
from inbound import BatchEventProcessor, BatchResponse

class Failing(BatchEventProcessor):
    def on_next_batch(self, batch):
        raise ValueError("no such <b>customer</b>")

class Calm(BatchEventProcessor):
    def on_next_batch(self, batch):
        return BatchResponse.advance()
"""
STORY = "document.querySelector('#detail').innerText"


@dataclass
class Night:
    """A process with a partition that is held, one whose subscriber is down, and a channel that does well."""

    stage: Stage
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def write(self, **changes: Any) -> None:
        """Write the configuration; JSON is YAML too."""
        body = {
            "zookeeper": {"hosts": self.stage.cluster.zookeeper_hosts, "session_timeout": "15s"},
            "kafka": {"bootstrap.servers": self.stage.cluster.bootstrap_servers},
            "admin": {"listen": "127.0.0.1:0", "token_file": str(self.folder / "token")},
            "controller": {"join_delay": "200ms"},
            "explain": {"interval": "2s"},
            "ledger": {"path": str(self.folder / "ledger")},
            "channels": self.stage.channels,
            **changes,
        }
        (self.folder / "inbound.yaml").write_text(json.dumps(body, indent=1))

    def start(self, *arguments: str) -> str:
        """Run a process; return the address of its admin port."""
        (self.folder / "token").write_text(f"{TOKEN}\n")
        (self.folder / "failing.py").write_text(PROCESSOR)
        self.stage.channel(
            "held", partitions=1, processor={"type": "failing:Failing"}, on_error={"max_attempts": 2, "then": "hold"}
        )
        self.stage.channel(
            "down", partitions=1, processor={"type": "dispatch", "options": {"subscriberUri": UNREACHABLE}}
        )
        self.stage.channel("calm", partitions=2, processor={"type": "failing:Calm"})
        for name in ("held", "down", "calm"):
            self.stage.publish(name, count=3)
        self.write()
        with open(self.folder / "log", "wb") as log:
            self.started.append(subprocess.Popen(self.command("run", *arguments), stderr=log))
        until(lambda: "admin: http" in self.log(), 120, self.log)
        found = re.search(r"admin: (http\S+)/status", self.log())
        assert found is not None
        return found.group(1)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "inbound", *arguments, "-c", str(self.folder / "inbound.yaml")]

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.stage.close()


@pytest.fixture
def night(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Night]:
    one = Night(Stage(embedded_cluster, tmp_path, name=f"page-{os.urandom(3).hex()}"), tmp_path)
    yield one
    one.close()


def row(night: Night, name: str, partition: int = 0) -> str:
    """Return what finds the row of a partition."""
    return f"{ROWS}.find(row => row.cells[0].innerText === '{night.stage.topic(name)}/{partition}')"


def reset_card(night: Night, name: str) -> str:
    """Return what finds the card of a channel's reset; the resets of other groups on these servers have cards too."""
    return (
        "[...document.querySelectorAll('#resets .reset')]"
        f".find(one => one.querySelector('h3').innerText === '{night.stage.topic(name)}')"
    )


def button(channel: str, verb: str) -> str:
    """Return what presses a channel's button."""
    card = f"[...document.querySelectorAll('#channels .card')].find(one => one.querySelector('h3').innerText === '{channel}')"
    return f"[...{card}.querySelectorAll('button')].find(one => one.innerText === '{verb}').click()"


def test_a_night_with_one_process(browser: Browser, night: Night, tmp_path: Path) -> None:
    """Held, subscriber down, paused; a reset with its six conditions; a configuration that is refused."""
    url = night.start()
    browser.open(f"{url}/")
    shows(browser, f"{row(night, 'held')}?.innerText.includes('poison-event')")
    shows(browser, f"{row(night, 'down')}?.innerText.includes('subscriber-down')")
    shows(browser, f"{row(night, 'calm')}?.cells[5].innerText === '3'")
    shows(browser, f"/^2 of 4 partitions are stalled: /.test({TITLE})")
    # Later than the cause, which is named from the first failure of the single record on.
    shows(browser, f"{row(night, 'held')}?.innerText.includes('held: ')")

    browser.run(f"{row(night, 'held')}.querySelector('button').click()")
    shows(
        browser,
        f"{STORY}.includes('Stalled') && {STORY}.includes('What to do') && {STORY}.includes('claimed, after joining')",
    )
    assert "no such <b>customer</b>" in browser.run(STORY)
    browser.screenshot(tmp_path / "held.png")
    browser.run("document.querySelector('#detail .close').click()")

    browser.run(button("calm", "Pause"))
    typed(browser, "#control [name=reason]", "a new disk")
    typed(browser, "#control [name=token]", "wrong")
    press(browser, "#control", "Pause")
    shows(browser, f"({ANSWER}).startsWith('Refused (401): this needs')")
    assert pauses(night) == []
    typed(browser, "#control [name=token]", TOKEN)
    press(browser, "#control", "Pause")
    shows(browser, f"({ANSWER}).startsWith('calm: paused; each member ends the batch in hand')")
    assert pauses(night) == ["operator"]
    press(browser, "#control", "Close")
    for partition in range(2):
        shows(browser, f"{row(night, 'calm', partition)}?.innerText.includes('paused')")
    shows(browser, "document.querySelector('#problems').innerText.includes('(a new disk)')")
    typed(browser, "#filter", "calm paused")
    assert browser.run(f"{ROWS}.length") == 2
    typed(browser, "#filter", "")
    browser.run(
        "document.querySelector('#filter').value = '', document.querySelector('#filter').dispatchEvent(new Event('input'))"
    )

    these = ("--group", night.stage.group("calm"), "--topic", night.stage.topic("calm"))
    reset = night.command("offsets", "reset", *these, "--to-earliest", "--execute")
    done = subprocess.run(reset, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    shows(browser, f"{reset_card(night, 'calm')}?.querySelectorAll('.steps li.good').length", 6)
    shows(browser, f"{row(night, 'calm')}?.cells[5].innerText === '0'")

    night.write(channels={**night.stage.channels, "calm": {**night.stage.channels["calm"], "workers": "five"}})
    press(browser, "#bar", "Reload")
    press(browser, "#control", "Reload")
    shows(browser, f"({ANSWER}).includes('calm.workers')")
    press(browser, "#control", "Close")
    shows(browser, "/inbound.yaml:\\d+: channels.calm.workers/.test(document.querySelector('#problems').innerText)")
    browser.run(button("calm", "Resume"))
    press(browser, "#control", "Resume")
    shows(browser, f"({ANSWER}).startsWith('calm: resumed')")
    press(browser, "#control", "Close")
    shows(browser, f"{row(night, 'calm')}?.cells[5].innerText === '3'")

    for width, height in ((1280, 900), (390, 844)):
        browser.look_like(width, height)
        browser.screenshot(tmp_path / f"night-{width}.png", whole=True)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert [one for one in browser.problems if "401" not in one] == []
    night.started[0].send_signal(signal.SIGTERM)
    assert night.started[0].wait(timeout=120) == 0
    shows(browser, "document.body.classList.contains('away')")


@pytest.mark.thorough(
    "the page of several processes is drawn from a status made by hand, and `--processes` has a test of its own"
)
def test_a_night_with_several_processes(browser: Browser, night: Night, tmp_path: Path) -> None:
    """Behind the parent's one port: rows of both, and a pause that all members hear of."""
    browser.open(f"{night.start('--processes', '2')}/")
    shows(browser, f"{ROWS}.length", 4)
    shows(browser, "document.querySelectorAll('#processes .card').length", 2)
    shows(
        browser,
        f"new Set({ROWS}.filter(row => row.cells[1].innerText === 'calm').map(row => row.cells[6].innerText)).size",
        2,
    )
    shows(browser, f"{row(night, 'down')}?.innerText.includes('subscriber-down')")
    browser.run(button("calm", "Pause"))
    typed(browser, "#control [name=token]", TOKEN)
    press(browser, "#control", "Pause")
    shows(browser, f"({ANSWER}).includes('calm: paused')")
    press(browser, "#control", "Close")
    shows(
        browser,
        f"{ROWS}.filter(row => row.cells[1].innerText === 'calm' && row.innerText.includes('paused')).length",
        2,
    )
    browser.screenshot(tmp_path / "several.png", whole=True)
    assert [one for one in browser.problems if "401" not in one] == []
    night.started[0].send_signal(signal.SIGTERM)
    assert night.started[0].wait(timeout=120) == 0


def pauses(night: Night) -> list[str]:
    """Return who pauses the channel that does well, as ZooKeeper has it."""
    path = f"/consumers/{night.stage.group('calm')}/pauses"
    return list(night.stage.zk.get_children(path)) if night.stage.zk.exists(path) else []
