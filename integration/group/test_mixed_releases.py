"""The previous release and this work tree in one group: what an operator does with one of them reaches the other."""

from __future__ import annotations

import json
import subprocess
from functools import partial

import pytest

from inbound.admin.client import fetch_status
from inbound.proof.model import Verdict
from integration.process.upgrading import LedgerFacts, MakeScene, MixedScene, Releases, ledger_facts
from tests.waiting import until

#: Seconds; the first test waits for two releases to be built and installed, which takes minutes on a busy machine.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "builds and installs two releases, minutes; the fast tests of compatibility and of mixed groups decide the rest"
    ),
]


def test_a_fixed_id_is_taken_over_at_once_by_the_other_release(mixed_scene: MakeScene, releases: Releases) -> None:
    """Lock file and id node mean the same to both: nobody waits for a dead predecessor's session.

    Both read the ledger whole, as lines: Parquet, which is made of ended files, the earlier one does not know.
    """
    s = mixed_scene(session=60.0)
    s.write_config(consumer_id="one")
    old, new = releases.previous, releases.current
    process = s.start_of(old)
    until(lambda: s.all_owned(1), 120, s.ends)
    for release, variables in ((new, {"INBOUND__LEDGER__COMPACT": "false"}), (old, {})):
        s.publish(3)
        until(s.everything_committed, 60, s.ends)
        process.kill()
        process.wait()
        before = s.epochs()
        process = s.start_of(release, **variables)
        until(partial(claimed_again, s, before), 120, s.ends)
        assert "waiting for it to expire" not in s.log(process)
    s.publish(3)
    s.settle()

    assert (s.account().clean, s.stop(process), s.no_traceback()) == (True, 0, True), s.ends()
    whole = LedgerFacts(damaged=0, numbers_missing=0, landed=dict(s.published))
    assert (ledger_facts(s, old), ledger_facts(s, new)) == (whole, whole)


def claimed_again(s: MixedScene, before: dict[int, int]) -> bool:
    """Whether every partition was claimed once more, and has an owner."""
    return s.all_owned(1) and all(epoch > before[partition] for partition, epoch in s.epochs().items())


def test_each_release_shows_and_pauses_members_of_the_other(mixed_scene: MakeScene, releases: Releases) -> None:
    """`status` of either reads `/status` of either; a pause of one is obeyed by both, and ended by the other."""
    s = mixed_scene()
    old, new = releases.previous, releases.current
    running = [(s.start_of(old), old), (s.start_of(new), new)]
    s.wait_until_shared(*running)
    for process, _ in running:
        for release in (old, new):
            shown = release.inbound("status", "--url", s.admin_url(process), within=s.folder)
            assert f"pid {process.pid} " in shown
            assert s.topic in shown

    for pauses, resumes in ((new, old), (old, new)):
        pauses.inbound("pause", "orders", "--reason", "upgrade", "-c", str(s.config), within=s.folder)
        until(lambda: all(paused(s, process) for process, _ in running), 60, lambda: f"both are paused: {s.ends()}")
        s.publish(2)
        delivered = sum(s.seen().values())
        resumes.inbound("resume", "orders", "-c", str(s.config), within=s.folder)
        s.settle()
        assert delivered == sum(s.published.values()) - 2 * s.partitions
    assert [s.stop(process) for process, _ in running] == [0, 0]
    assert (s.account().clean, s.no_traceback()) == (True, True), s.ends()


def paused(s: MixedScene, process: subprocess.Popen[bytes]) -> bool:
    """Whether a member says that it is paused."""
    (channel,) = fetch_status(s.admin_url(process), 30)["channels"]
    return bool(channel["paused"])


def test_a_reset_overtakes_a_member_that_does_not_know_of_resets(mixed_scene: MakeScene, releases: Releases) -> None:
    """With `--force-after`: what it holds is taken from it, and it goes on from the new offsets, as all do."""
    s = mixed_scene()
    s.verdict = Verdict.NOT_PROVABLE  # the member of the release before notes no resets in its ledger
    old, new = releases.previous, releases.current
    running = [(s.start_of(old), old), (s.start_of(new), new)]
    s.wait_until_shared(*running)
    s.publish(20)
    s.settle()

    asked = (
        f"offsets reset --group {s.group} --topic {s.topic} --to-earliest --execute --force-after 3 --wait 100 --json"
    )
    done = json.loads(new.inbound(*asked.split(), "-c", str(s.config), within=s.folder))
    until(lambda: set(s.seen().values()) == {2}, 90, lambda: f"all is read again: {s.seen()} {s.ends()}")
    s.publish(5)
    s.settle()

    assert [one["status"] for one in done["conditions"] if one["type"] == "Succeeded"] == ["True"], done
    assert {(offset < 20, times) for (_, offset), times in s.seen().items()} == {(True, 2), (False, 1)}
    assert s.account().lost == {}
    assert [s.stop(process) for process, _ in running] == [0, 0]
    assert s.no_traceback(), s.ends()


def test_ledger_files_that_a_member_of_the_other_release_still_writes_are_left_alone(
    mixed_scene: MakeScene, releases: Releases
) -> None:
    """A release that makes Parquet of ended files, beside one that does not lock those that it writes."""
    s = mixed_scene()
    old, new = releases.previous, releases.current
    ended = s.start_of(old, INBOUND__CHANNELS__ORDERS__CONSUMER_ID="z-ended")
    s.publish(1)
    until(s.everything_committed, 120, lambda: f"it consumes: {s.ends()}")
    assert s.stop(ended) == 0

    living = s.start_of(old, INBOUND__CHANNELS__ORDERS__CONSUMER_ID="a-living")
    beside = s.start_of(new, INBOUND__CHANNELS__ORDERS__CONSUMER_ID="b-beside")
    until(lambda: s.all_owned(2), 120, lambda: f"they share the topic: {s.ends()}")
    s.start_load(per_second=20)
    # Folders are gone through in the order of names: a member that is done with z has looked at a.
    until(
        lambda: ledger_files(s, "z-ended") == {"0001.parquet"}, 120, lambda: f"the ended file is converted: {s.ends()}"
    )
    s.settle()
    files = ledger_files(s, "a-living")
    codes = [s.stop(process) for process in (living, beside)]

    assert (files, codes) == ({"0001.jsonl"}, [0, 0]), s.ends()
    assert ledger_facts(s, new) == LedgerFacts(damaged=0, numbers_missing=0, landed=dict(s.published))
    assert (s.account().clean, s.no_traceback()) == (True, True), s.ends()


def ledger_files(s: MixedScene, consumer: str) -> set[str]:
    """Return the ends of the names of a consumer's ledger files."""
    return {path.name.rpartition("-")[2] for path in (s.folder / "ledger" / s.group).glob(f"{consumer}-*")}
