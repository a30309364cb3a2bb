"""What the status tells of resets: which of them, in which order, and that it can be read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inbound.controller.reset_offset import Ref, RefInfo, ResetCommand, ResetSpec, To
from inbound.controller.reset_offset.model import ResetEvent
from inbound.observe.status.status import ENDED, ResetsStatus, process_status, reset_details
from tests.observe.status.made_status import process

NOW = 1738368060.0


def command(name: str, created: float = NOW, **changes: Any) -> ResetCommand:
    made = ResetCommand(
        name=name,
        ref=Ref(kind="Channel", name="orders"),
        spec=ResetSpec(to=To.EARLIEST, partitions=(0, 1)),
        created=created,
        by="ann",
    )
    return replace(made, **changes)


def ended(name: str, at: float) -> ResetCommand:
    return command(name, at - 5).at(at, ResetEvent.CANCEL)


def test_the_status_has_a_reset_with_its_conditions() -> None:
    """Whose topic and group are not found yet, and one of which they are."""
    told = command("one").at(NOW)
    found = told.at(NOW + 2, ResetEvent.MAP, info=RefInfo(topic="orders", group="svc"))
    (before, after) = reset_details([told, replace(found, name="two", created=NOW + 1)])
    assert (before.ref, before.topic, before.group, before.what, before.state) == (
        "Channel orders",
        None,
        None,
        "to the earliest offset, partitions 0 to 1",
        "accepted",
    )
    assert [c["status"] for c in before.conditions] == ["Unknown"] * 6
    assert (after.topic, after.group, after.state, after.finished) == ("orders", "svc", "mapped", False)
    assert [(c["type"], c["status"]) for c in after.conditions][:2] == [
        ("RefMapped", "True"),
        ("AcquireDataPlaneServices", "Unknown"),
    ]


def test_those_under_way_come_first_and_of_the_others_only_the_last() -> None:
    """A hundred that have ended are kept in ZooKeeper; the status is asked for every few seconds."""
    over = [ended(f"ended-{n}", NOW + n) for n in range(ENDED + 3)]
    names = [one.name for one in reset_details([*over, command("late", NOW + 99), command("early", NOW + 98)])]
    assert names == ["early", "late", *(f"ended-{n}" for n in range(ENDED + 2, 2, -1))]


def test_it_can_be_read_back() -> None:
    """As the parent of several processes does; keys of a newer version are left out, and an older one has none."""
    details = reset_details([command("one").at(NOW)])
    status = process(resets=ResetsStatus(unfinished=1, known=details))
    body = status.as_dict()
    assert process_status(body) == status
    body["resets"]["known"][0]["new"] = 1
    assert process_status(body) == status
    del body["resets"]["known"]
    assert process_status(body).resets == ResetsStatus(unfinished=1)
