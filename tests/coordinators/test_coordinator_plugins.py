"""From the configuration's `coordinator:` to what plans a channel; and the error for one that cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inbound.config import load, render
from inbound.errors import ConfigError
from inbound.plan.plan import plan_channels

FILE = """\
channels:
  orders:
    topics: [orders]
    group: g
    processor: {type: simple, options: {sinks: [log]}}
    coordinator:
      type: %s
"""

MODULE = """\
from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from pydantic import BaseModel

class Options(BaseModel, extra="forbid"):
    rack: str
    weight: int = 1

class Racks(ZkCoordinator):
    Options = Options
    def parameters(self):
        return {"rack": self.options.rack}
    def plan(self, view):
        return Plan()

class Unfinished(ZkCoordinator):
    pass

class Fussy(ZkCoordinator):
    def __init__(self, options):
        raise ValueError("not today")
    def plan(self, view):
        return Plan()

class NoOptions(Fussy):
    def __init__(self):
        pass

class Secretive(ZkCoordinator):
    def parameters(self):
        return {"what": object()}
    def plan(self, view):
        return Plan()

nothing = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a module of coordinators on the import path."""
    path = tmp_path / "made_coordinators.py"
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "made_coordinators", raising=False)
    return path


def line_of(text: str) -> int:
    """Return the number of the first line of the module that holds `text`."""
    return next(number for number, line in enumerate(MODULE.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("coordinator", "registration"),
    [
        ("dynamic", {"type": "dynamic"}),
        ("fixed-count\n      count: 4", {"type": "fixed-count", "count": 4}),
        ("static\n      partitions: {orders: [2, 0]}", {"type": "static", "partitions": {"orders": [0, 2]}}),
        (
            '"made_coordinators:Racks"\n      options: {rack: r1}',
            {"type": "made_coordinators:Racks", "rack": "r1"},
        ),
    ],
)
def test_each_kind_is_made_with_its_parameters(coordinator: str, registration: dict[str, object]) -> None:
    """And stands in the id node so; what is rendered loads as the same, but for what is secret."""
    loaded = load(FILE % coordinator, filename="inbound.yaml")

    assert plan_channels(loaded)["orders"].coordinator.registration() == registration
    assert load(render(loaded.config), filename="g").config == loaded.config
    secret = load(FILE % '"m:C"\n      options: {token: s3cret, url: u}', filename="f").config
    assert ("s3cret" in render(secret) + repr(secret), "url: u" in render(secret)) == (False, True)


def test_a_channel_without_one_is_dynamic() -> None:
    """Also with the key there and nothing below it that says otherwise."""
    without = FILE.split("    coordinator")[0]
    for text in (without, f"{without}    coordinator: {{}}\n"):
        planned = plan_channels(load(text, filename="inbound.yaml"))
        assert planned["orders"].coordinator.registration() == {"type": "dynamic"}


def test_counts_and_lists_can_be_set_by_environment() -> None:
    """As every value; a list with commas."""
    prefix = "INBOUND__CHANNELS__ORDERS__COORDINATOR"
    text = FILE % "static\n      partitions: {orders: [0]}"
    loaded = load(text, filename="f", environ={f"{prefix}__PARTITIONS__ORDERS": "3, 5"})
    counted = load(FILE % "dynamic", filename="f", environ={f"{prefix}__TYPE": "fixed-count", f"{prefix}__COUNT": "8"})

    assert plan_channels(loaded)["orders"].coordinator.parameters() == {"partitions": {"orders": [3, 5]}}
    assert plan_channels(counted)["orders"].coordinator.parameters() == {"count": 8}


def test_a_listed_topic_must_match_the_pattern() -> None:
    """Its whole name, as the channel's own choice does."""
    text = (FILE % "static\n      partitions: {orders-eu: [0], order: [1]}").replace(
        "topics: [orders]", "topics_pattern: orders.*"
    )
    with pytest.raises(ConfigError) as caught:
        load(text, filename="inbound.yaml")

    assert str(caught.value) == (
        "inbound.yaml:8: channels.orders.coordinator.partitions.order: does not match topics_pattern ('orders.*'); correct "
        "one of the two"
    )


@pytest.mark.parametrize(
    ("coordinator", "line", "problem"),
    [
        (
            "no_such_module_here:C", 7,
            "type: no module 'no_such_module_here'; put no_such_module_here.py beside the configuration file, or install it",
        ),
        ("made_coordinators:Rack", 7, "type: made_coordinators has no 'Rack'; its path is {path}"),
        (
            "made_coordinators:nothing", 7,
            "type: made_coordinators:nothing is 3, not a ZkCoordinator; derive it from "
            "inbound.coordinators.base.ZkCoordinator",
        ),
        (
            "made_coordinators:Unfinished", 7,
            "type: made_coordinators:Unfinished lacks plan; write it: it says what to take and what to release",
        ),
        (
            "made_coordinators:Fussy", 7,
            "type: made_coordinators:Fussy cannot be made with its options: ValueError: not today ({path}:"
            f"{line_of('not today')})",
        ),
        (
            "made_coordinators:NoOptions", 7,
            "type: made_coordinators:NoOptions cannot be made with its options: TypeError: NoOptions.__init__() takes 1",
        ),
        (
            "made_coordinators:Secretive", 7,
            "type: made_coordinators:Secretive.parameters cannot stand in the id node: TypeError: Object of type object is "
            "not JSON serializable",
        ),
        (
            '"made_coordinators:Racks"\n      options: {rack: r, weight: heavy}', 8,
            "options.weight: need a whole number, got 'heavy'",
        ),
        (
            '"made_coordinators:Racks"\n      options: {rack: r, wight: 1}', 8,
            "options.wight: unknown key; did you mean weight? allowed: rack, weight",
        ),
        ("made_coordinators:Racks", 6, "options.rack: missing; this key is required"),
    ],
)  # fmt: skip
def test_one_that_cannot_be_used_is_named_with_its_line(
    coordinator: str, line: int, problem: str, module: Path
) -> None:
    """As a processor is: what is wrong, where, and what to do."""
    loaded = load(FILE % coordinator, filename="inbound.yaml")
    with pytest.raises(ConfigError) as caught:
        plan_channels(loaded)

    expected = f"inbound.yaml:{line}: channels.orders.coordinator.{problem.format(path=module)}"
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_problems_of_processor_and_coordinator_are_reported_together() -> None:
    """A line each."""
    text = (FILE % "made_coordinators:Unfinished").replace("simple", "absent")
    with pytest.raises(ConfigError) as caught:
        plan_channels(load(text, filename="inbound.yaml"))

    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "channels.orders.coordinator.type",
        "channels.orders.processor.type",
    ]
