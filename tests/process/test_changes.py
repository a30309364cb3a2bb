"""From one plan to another: which steps, and for which keys. A table, and two laws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from inbound.config import ChannelConfig, Config, load
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.plan.plan import PlannedChannel, plan_channels
from inbound.process.application import Application
from inbound.process.reload.changes import REPLACED_FOR, Changes, ChannelStep, Do, ProcessPlan, changes
from inbound.testing.world import Recording

BASE = """\
ledger: {type: none}
channels:
  plain: {topics: [x], group: g, processor: {type: simple, options: {sinks: [log]}}}
  posted:
    topics: [orders]
    group: p
    subscriptions:
      a: {subscriberUri: "http://a", uid: u-a}
      b: {subscriberUri: "http://b", delivery: {timeout: PT30S}}
"""
EDIT, REPLACE, ADD, REMOVE = Do.EDIT, Do.REPLACE, Do.ADD, Do.REMOVE


def plan(text: str, **contents: str) -> ProcessPlan:
    """Return what a configuration asks for; `contents` stands for what the files hold that it names."""
    named = {key.replace("__", "."): value for key, value in contents.items()}
    loaded = replace(load(text, filename="f"), contents=named)
    return ProcessPlan(loaded.config, plan_channels(loaded), loaded.contents)


def steps(found: Changes) -> dict[str, tuple[Do, tuple[str, ...]]]:
    """Return what is done with channels, and why."""
    return {name: (step.do, step.why) for name, step in found.steps.items()}


@pytest.mark.parametrize(
    ("what", "instead", "expected"),
    [
        ("http://a", "http://a", {}),
        ("PT30S", "30s", {}),  # the same in other words
        ("    group: p", "    group: p # a comment", {}),
        ("http://a", "http://other", {"posted.a": (EDIT, ("processor.options",))}),
        ("uid: u-a", "uid: u-a, generation: 2", {"posted.a": (EDIT, ("subscriber",))}),
        ("uid: u-a", "uid: u-a, transport: requests", {"posted.a": (REPLACE, ("processor.options",))}),
        ("uid: u-a", "uid: u-a, group: other", {"posted.a": (REPLACE, ("group",))}),
        ("      a:", "      c:", {"posted.a": (REMOVE, ()), "posted.c": (ADD, ())}),
        ("    subscriptions:", "    subscriptions:\n      c: {subscriberUri: 'http://c'}", {"posted.c": (ADD, ())}),
        ("group: p", "group: p\n    workers: 7", {f"posted.{x}": (EDIT, ("workers",)) for x in "ab"}),
        ("[orders]", "[others]", {f"posted.{x}": (REPLACE, ("topics",)) for x in "ab"}),
        ("[log]", "[log, log]", {"plain": (EDIT, ("processor.options",))}),
        ("[log]", "[log], max_read_rate: 9/s", {"plain": (EDIT, ("processor.options",))}),
        ("group: g", "group: g, workers: 9, idle_time: 3s", {"plain": (EDIT, ("workers", "idle_time"))}),
        ("group: g", "group: g, reader: {idle_wait: 1s}", {"plain": (EDIT, ("reader.idle_wait",))}),
        ("group: g", "group: g, on_error: {then: skip}", {"plain": (EDIT, ("on_error.then",))}),
        ("group: g", "group: g, isolation: read_uncommitted", {"plain": (EDIT, ("isolation",))}),
        ("group: g", "group: h", {"plain": (REPLACE, ("group",))}),
        ("group: g", "group: g, consumer_id: me", {"plain": (REPLACE, ("consumer_id",))}),
        ("group: g", "group: g, coordinator: {type: fixed-count, count: 3}", {"plain": (REPLACE, ("coordinator",))}),
        ("group: g", "group: g, reader: {client: confluent-kafka}", {"plain": (REPLACE, ("reader.client",))}),
        ("  plain:", "  other:", {"other": (ADD, ()), "plain": (REMOVE, ())}),
        ("  plain:", "  # plain:", {"plain": (REMOVE, ())}),
    ],
)
def test_each_difference_of_a_channel_is_one_step_and_no_other_channel_has_one(
    what: str, instead: str, expected: dict[str, tuple[Do, tuple[str, ...]]]
) -> None:
    """Keys of its membership make it another member; it takes in all others and keeps its partitions."""
    found = changes(plan(BASE), plan(BASE.replace(what, instead, 1)))
    assert (steps(found), dict(found.sections)) == (expected, {})


ALL = ("plain", "posted.a", "posted.b")
NO_CHANNEL: dict[str, tuple[Do, tuple[str, ...]]] = {}
FILES = BASE.replace("{type: none}", "{type: files, path: a}")


@pytest.mark.parametrize(
    ("section", "sections", "expected"),
    [
        (
            "zookeeper: {session_timeout: 5s}",
            {"zookeeper": ("session_timeout",)},
            dict.fromkeys(ALL, (REPLACE, ("zookeeper",))),
        ),
        ("kafka: {client.rack: r}", {"kafka": ("client.rack",)}, dict.fromkeys(ALL, (EDIT, ("kafka",)))),
        ("controller: {join_delay: 1s}", {"controller": ("join_delay",)}, NO_CHANNEL),
        ("admin: {listen: '127.0.0.1:9'}", {"admin": ("listen",)}, NO_CHANNEL),
        ("admin: {listen: '127.0.0.1:8081'}", {"admin": ("listen",)}, NO_CHANNEL),  # given now: no other one will do
        ("ingress: {listen: '127.0.0.1:9'}", {"ingress": ("all",)}, NO_CHANNEL),
        # How long a ledger is kept, and what becomes of its failures, is no matter of which ledger it is.
        (
            "ledger: {type: files, path: a, retention: 1d, on_failure: degrade}",
            {"ledger": ("retention", "on_failure")},
            NO_CHANNEL,
        ),
        ("ledger: {type: files, path: b}", {"ledger": ("path",)}, dict.fromkeys(ALL, (REPLACE, ("ledger",)))),
        ("ledger: {type: none}", {"ledger": ("type", "path")}, dict.fromkeys(ALL, (REPLACE, ("ledger",)))),
    ],
)
def test_a_section_of_the_process_and_what_stands_on_it(
    section: str, sections: dict[str, tuple[str, ...]], expected: dict[str, tuple[Do, tuple[str, ...]]]
) -> None:
    """Channels follow where they use it, and only there."""
    rest = FILES.partition("\n")[2] if section.startswith("ledger") else FILES
    found = changes(plan(FILES), plan(f"{section}\n{rest}"))
    assert {name: set(keys) for name, keys in found.sections.items()} == {n: set(keys) for n, keys in sections.items()}
    assert steps(found) == expected


@pytest.mark.parametrize(
    ("contents", "sections", "expected"),
    [
        ({"kafka": "2"}, {"kafka": ("files",)}, dict.fromkeys(ALL, (EDIT, ("kafka",)))),
        ({"zookeeper": "2"}, {"zookeeper": ("files",)}, NO_CHANNEL),  # the same session goes on, by a new connection
        ({"channels__posted": "2"}, {}, dict.fromkeys(ALL[1:], (EDIT, ("files",)))),
        ({"channels__plain": "2"}, {}, {"plain": (EDIT, ("files",))}),
    ],
)
def test_what_files_hold_that_it_names_is_part_of_the_configuration(
    contents: dict[str, str], sections: dict[str, tuple[str, ...]], expected: dict[str, tuple[Do, tuple[str, ...]]]
) -> None:
    """Credentials and certificates change in their files, and not a letter in the configuration."""
    found = changes(plan(BASE, kafka="1", zookeeper="1"), plan(BASE, **{"kafka": "1", "zookeeper": "1", **contents}))
    assert (dict(found.sections), steps(found)) == (sections, expected)


def test_every_section_can_change_while_the_process_runs(tmp_path: Path) -> None:
    """A process takes each of them in, and tells its channels from its other parts."""
    channel = "channels: {a: {topics: [t], group: g, processor: {type: simple, options: {sinks: [{type: log}]}}}}"
    application = Application(load(f"{channel}\nledger: {{type: none}}", filename="f"), lock_dir=tmp_path)

    taken_in = {section.name for section in application.reconfiguration.sections}
    application.stop()

    assert taken_in == set(Config.model_fields) - {"channels", "manifests"}


def channel_keys(model: type[BaseModel] = ChannelConfig, prefix: str = "") -> Iterator[str]:
    """Yield every key of a channel, in the form that `differing` yields."""
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from channel_keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_keys_for_which_a_channel_is_replaced_are_keys_of_a_channel() -> None:
    """A key that was renamed would silently count as one that changes in place."""
    assert REPLACED_FOR - set(channel_keys()) == set()


class Other(Recording):
    """Another class of processors."""


def channel(values: dict[str, Any]) -> PlannedChannel:
    """Return a planned channel with some settings of its own."""
    config = ChannelConfig.model_validate(
        {"topics": values["topics"], "group": values["group"], "workers": values["workers"], "processor": {"type": "x"}}
    )
    base = {"zookeeper": values["base"]}
    return PlannedChannel(
        config, values["processor"], "", values["options"], DynamicCoordinator(), base=base, files=values["files"]
    )


CHANNELS = st.dictionaries(
    st.sampled_from("abc"),
    st.fixed_dictionaries(
        {
            "topics": st.sampled_from([["x"], ["y"]]),
            "group": st.sampled_from("gh"),
            "workers": st.integers(1, 2),
            "options": st.sampled_from([{}, {"a": 1}]),
            "processor": st.sampled_from([Recording, Other]),
            "files": st.sampled_from(["", "1"]),
            "base": st.integers(0, 1),
        }
    ).map(channel),
)


@given(old=CHANNELS, new=CHANNELS)
def test_the_steps_lead_there_and_touch_nothing_else(
    old: dict[str, PlannedChannel], new: dict[str, PlannedChannel]
) -> None:
    """Taking them one by one makes of the old what the new is; what is the same in both has no step."""
    config = Config.model_construct()
    found = changes(ProcessPlan(config, old), ProcessPlan(config, new)).steps
    there = dict(old)
    for name, step in found.items():
        if step.do in (REMOVE, REPLACE):
            del there[name]
        if step.do in (ADD, REPLACE, EDIT):
            there[name] = new[name]

    assert not changes(ProcessPlan(config, there), ProcessPlan(config, new))
    assert all(not _same(old.get(name), new.get(name)) for name in found)


def _same(one: PlannedChannel | None, other: PlannedChannel | None) -> bool:
    if one is None or other is None:
        return one is other
    return replace(one, coordinator=other.coordinator) == other


def test_changes_have_a_line_each() -> None:
    """For the log, the status and the command."""
    found = Changes(
        {"a": ChannelStep(EDIT, ("workers",)), "b": ChannelStep(ADD)}, {"kafka": ("client.rack", "client.id")}
    )
    assert found.told() == ["kafka: client.rack, client.id", "channel a: edited (workers)", "channel b: added"]
