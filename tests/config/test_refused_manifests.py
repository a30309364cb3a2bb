"""A manifest that cannot be used stops only itself: its dependants stop, all else goes on, and the operator sees it."""

from __future__ import annotations

import argparse
import copy
import logging
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.cli.main import main
from inbound.cli.shared.files import known_channels, load_config
from inbound.config import Loaded, load, parse_manifests
from inbound.controller.reset_offset import Ref
from inbound.errors import ConfigError, UnknownRefError
from inbound.plan.plan import check_runs, plan_all
from inbound.plan.resets import ref_mapper_of
from inbound.plan.subscriptions import read_subscriptions
from inbound.process.reload.changes import ManifestRefusal, ProcessPlan, changes, keeping
from tests.process.test_reconfiguration import Stage

CONFIG = "ledger: {type: none}\nmanifests: {paths: [channels]}\n"
OWN = "channels: {own: {topics: [x], group: kafka.u-own, processor: {type: simple, options: {sinks: [log]}}}}\n"


def channel(name: str, *uids: str, **spec: Any) -> dict[str, Any]:
    """Return a channel with these subscribers."""
    subscribers = [{"uid": uid, "subscriberUri": f"http://{uid}"} for uid in uids]
    return {
        "apiVersion": "messaging.knative.dev/v1",
        "kind": "KafkaChannel",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"subscribers": subscribers, **spec},
    }


def text(*documents: Any) -> str:
    return yaml.safe_dump_all(documents)


def loaded(config: str = CONFIG, **files: str) -> Loaded:
    """Return a configuration and what its manifests say, by the names of their files."""
    found = parse_manifests({f"{name}.yaml": written for name, written in files.items()})
    return replace(
        load(config, filename="inbound.yaml"),
        manifests=found.channels, subscriptions=found.subscriptions, refused=found.refused,
    )  # fmt: skip


def plan(config: str = CONFIG, **files: str) -> ProcessPlan:
    """Return what a process is to do by it."""
    one = loaded(config, **files)
    planned = plan_all(one)
    read = frozenset(manifest.name for manifest in one.manifests)
    return ProcessPlan(one.config, planned.channels, refused=tuple(map(ManifestRefusal, planned.refused)), read=read)


GOOD = channel("good", "u-1", "u-2")
BROKEN = "kind: [\n"
WITHOUT_NAME = {**channel("x", "u-3"), "metadata": {}}
STOPPED = {
    # what is in the files: the channels that run, and what is refused
    "a file that is no YAML": ({"a": text(GOOD), "b": BROKEN}, ["good.u-1", "good.u-2"], ["b.yaml"]),
    "a document of a file": (
        {"a": f"{text(GOOD)}---\n{BROKEN}---\n{text(channel('more', 'u-3'))}"},
        ["good.u-1", "good.u-2", "more.u-3"],
        ["a.yaml"],
    ),
    "a document that is no object": ({"a": f"{text(GOOD)}---\n- 1\n"}, ["good.u-1", "good.u-2"], ["a.yaml"]),
    "an object of a List": (
        {"a": text({"kind": "List", "items": [channel("bad", "u-3", numPartitions="x"), 7, GOOD]})},
        ["good.u-1", "good.u-2"],
        ["KafkaChannel shop/bad", "a.yaml"],
    ),
    "a List that has no list": ({"a": text(GOOD), "b": text({"kind": "List", "items": {}})}, ["good.u-1", "good.u-2"], ["b.yaml"]),
    "a channel without a name": ({"a": text(GOOD, WITHOUT_NAME)}, ["good.u-1", "good.u-2"], ["a.yaml"]),
    "a kind with a slip of the pen": (
        {"a": text(GOOD, {**channel("bad", "u-3"), "kind": "Kafkachanel"})}, ["good.u-1", "good.u-2"], ["KafkaChannel shop/bad"]
    ),
    "a channel's delivery": (
        {"a": text(GOOD, channel("bad", "u-3", "u-4", delivery={"retry": "x"}))},
        ["good.u-1", "good.u-2"],
        ["KafkaChannel shop/bad"],
    ),
    "a subscriber's form": (
        {"a": text(GOOD, channel("half", "u-3", "u-4") | {"spec": {"subscribers": [
            {"uid": "u-3"} | {"subscribrUri": "http://x"}, {"uid": "u-4", "subscriberUri": "http://x"}]}})},
        ["good.u-1", "good.u-2", "half.u-4"],
        ["KafkaChannel shop/half, subscriber u-3"],
    ),
    "a subscriber's URL": (
        {"a": text(channel("half", "u-4", "u 3"))}, ["half.u-4"], ["KafkaChannel shop/half, subscriber u 3"]
    ),
    "two of one name": (
        {"a": text(GOOD), "b": text(channel("same", "u-3")), "c": text(channel("same", "u-4"))},
        ["good.u-1", "good.u-2"],
        ["KafkaChannel shop/same", "KafkaChannel shop/same"],
    ),
    "two of one name, one of them bad": (
        {"a": text(GOOD), "b": text(channel("same", "u-3")), "c": text(channel("same", "u-4", numPartitions="x"))},
        ["good.u-1", "good.u-2"],
        ["KafkaChannel shop/same", "KafkaChannel shop/same"],
    ),
    "two subscribers of one group": (
        {"a": text(GOOD, channel("one", "u-3", "u-4"), channel("two", "u-3"))},
        ["good.u-1", "good.u-2", "one.u-4"],
        ["KafkaChannel shop/one, subscriber u-3", "KafkaChannel shop/two, subscriber u-3"],
    ),
    "a group of the configuration's own": (
        {"a": text(GOOD, channel("bad", "u-own"))}, ["good.u-1", "good.u-2"], ["KafkaChannel shop/bad, subscriber u-own"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "run", "refused"), STOPPED.values(), ids=STOPPED)
def test_what_cannot_be_used_stops_itself(files: dict[str, str], run: list[str], refused: list[str]) -> None:
    """All else runs; each has its file and line, and names its object."""
    found = plan(CONFIG + OWN, **files)

    assert sorted(found.channels) == sorted(["own", *(f"shop.{name}" for name in run)])
    assert sorted(one.manifest.subject for one in found.refused) == sorted(refused)
    assert all(one.manifest.problem.startswith(f"{one.manifest.file}:") for one in found.refused)


def test_a_mirror_that_two_would_write_stops_those_of_manifests() -> None:
    """Whichever counted would overwrite the other's offsets."""
    config = f"{CONFIG.replace(']}', '], settings: {offsets: {mirror: kafka, group: mirrored}}}')}{OWN}"

    found = plan(config, a=text(channel("orders", "u-1", "u-2")), b=text(channel("mails", "u-3")))

    assert (sorted(found.channels), [one.manifest.uid for one in found.refused]) == (
        ["own", "shop.mails.u-3"],
        ["u-1", "u-2"],
    )


def test_dead_letters_still_go_to_a_channel_that_cannot_be_used() -> None:
    """Its topic is known by its name."""
    sink = {"deadLetterSink": {"ref": {"kind": "KafkaChannel", "name": "lost"}}}

    found = read_subscriptions(
        loaded(a=text(channel("good", "u-1", delivery=sink), channel("lost", numPartitions="x")))
    )

    options = found.found["shop.good.u-1"].options
    assert options.delivery.deadLetterSink is not None
    assert options.delivery.deadLetterSink.topic == "shop.lost"


# -- while it runs -------------------------------------------------------------------------------------------------------

TWO = channel("two", "u-3", "u-4")
BAD_URL = copy.deepcopy(TWO)
BAD_URL["spec"]["subscribers"][0]["subscriberUri"] = "ftp://x"
NO_UID = copy.deepcopy(TWO)
del NO_UID["spec"]["subscribers"][0]["uid"]
MOVED = channel("good", "u-1", "u-2")
MOVED["spec"]["subscribers"][1]["subscriberUri"] = "http://other"
KEPT = {
    # the files afterwards: which steps are taken, and who goes on as before
    "the channel": ({"a": text(MOVED), "b": text({**TWO, "spec": 3})}, {"good.u-2": "edited"}, ["two.u-3", "two.u-4"]),
    "one subscriber": ({"a": text(MOVED), "b": text(BAD_URL)}, {"good.u-2": "edited"}, ["two.u-3"]),
    "the name of one": ({"a": text(GOOD), "b": text(NO_UID)}, {}, ["two.u-3"]),
    "the file": ({"a": text(MOVED), "b": BROKEN}, {"good.u-2": "edited"}, ["two.u-3", "two.u-4"]),
    "the name of the channel": ({"a": text(GOOD), "b": text({**TWO, "metadata": {}})}, {}, ["two.u-3", "two.u-4"]),
    "a second one of its name": ({"a": text(GOOD), "b": text(TWO), "c": text(TWO)}, {}, ["two.u-3", "two.u-4"]),
    "its group, taken": ({"a": text(GOOD), "b": text(TWO), "c": text(channel("new", "u-3"))}, {}, ["two.u-3"]),
    "another document of its file": (
        {"a": text(GOOD), "b": f"{text(channel('two', 'u-3'))}---\n{BROKEN}"}, {"two.u-4": "removed"}, []
    ),
    "nothing: it is gone": ({"a": text(GOOD)}, {"two.u-3": "removed", "two.u-4": "removed"}, []),
    "nothing: it is being deleted": (
        {"a": text(GOOD), "b": text({**TWO, "metadata": {**TWO["metadata"], "deletionTimestamp": "x"}, "spec": 3})},
        {"two.u-3": "removed", "two.u-4": "removed"}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "steps", "kept"), KEPT.values(), ids=KEPT)
def test_what_ran_goes_on_as_it_was_while_its_manifest_cannot_be_used(
    files: dict[str, str], steps: dict[str, str], kept: list[str]
) -> None:
    """The others follow their edits; what is mended goes on by its manifest again."""
    before = plan(a=text(GOOD), b=text(TWO))

    now = keeping(before, plan(**files))
    twice = keeping(now, plan(**files))

    assert {name: step.do.value for name, step in changes(before, now).steps.items()} == {
        f"shop.{name}": done for name, done in steps.items()
    }
    assert [name for one in now.refused for name in one.kept] == [f"shop.{name}" for name in kept]
    assert (changes(now, twice).steps, twice.refused) == ({}, now.refused)
    assert not changes(before, keeping(now, plan(a=text(GOOD), b=text(TWO))))


def test_what_goes_on_stands_on_the_new_sections() -> None:
    """Another session of ZooKeeper is for all channels."""
    before = plan(a=text(GOOD), b=text(TWO))
    after = plan(f"zookeeper: {{session_timeout: 5s}}\n{CONFIG}", a=text(GOOD), b=BROKEN)

    steps = changes(before, keeping(before, after)).steps

    assert {(name, step.do.value, step.why) for name, step in steps.items()} == {
        (name, "replaced", ("zookeeper",)) for name in before.channels
    }


def test_a_group_goes_where_it_is_wanted_now() -> None:
    """Its subscriber moved to another channel, and the one that it was in was broken by that."""
    before = plan(a=text(TWO))
    after = keeping(before, plan(a=BROKEN, b=text(channel("new", "u-3"))))

    assert sorted(after.channels) == ["shop.new.u-3", "shop.two.u-4"]


def test_each_refused_manifest_and_its_correction_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """By the log, the status and the answer to a reload; a line more above it is no news."""
    caplog.set_level(logging.INFO, "inbound.process.reload.reconfiguration")
    good, bad = plan(a=text(GOOD), b=text(TWO)), plan(a=text(MOVED), b=text(BAD_URL))
    stage = Stage(good)

    for news in (bad, plan(a=text(MOVED), b=f"# more\n{text(BAD_URL)}"), good):
        stage.say(news)
        stage.run(1)
        if news is bad:
            number = stage.it.ask()
            stage.run(1)
            asked = stage.it.answer(number, 0.0)

    problem = (
        "spec.subscribers[0].subscriberUri: need a URL of printable ASCII such as http://host:8080/path (http or https)"
    )
    told = (
        f"KafkaChannel shop/two, subscriber u-3 cannot be used, and shop.two.u-3 goes on as before: b.yaml:8: {problem}"
    )
    assert asked is not None
    assert (asked.outcome, asked.problem) == ("unchanged", told)
    assert [message for message in caplog.messages if "KafkaChannel" in message] == [
        f"{told}; everything else goes on",
        "KafkaChannel shop/two, subscriber u-3: no longer refused",
    ]
    assert (stage.it.status().problem, stage.it.refused) == (None, ())


# -- commands ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a good manifest and one that is wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbound.yaml").write_text(CONFIG)
    (tmp_path / "channels").mkdir()
    (tmp_path / "channels" / "a.yaml").write_text(text(GOOD))
    (tmp_path / "channels" / "b.yaml").write_text(text(BAD_URL))
    return tmp_path


def test_a_check_is_a_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what would run, and ends with code 2 and what would not."""
    code = main(["check"])

    out, err = capsys.readouterr()
    assert (code, [line.split(":")[0] for line in out.splitlines()]) == (
        2,
        ["channel shop.good.u-1", "channel shop.good.u-2", "channel shop.two.u-4"],
    )
    assert "error: channels/b.yaml:8: spec.subscribers[0].subscriberUri: need a URL" in err


def test_other_commands_do_their_work_with_what_there_is(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And say what is left out."""
    found = known_channels(load_config(argparse.Namespace(config=folder / "inbound.yaml", set=[])))

    (warning,) = caplog.messages
    assert list(found) == ["shop.good.u-1", "shop.good.u-2", "shop.two.u-4"]
    assert warning.startswith("KafkaChannel shop/two, subscriber u-3 cannot be used, and is left out: ")


def test_nothing_to_run_is_a_bad_configuration() -> None:
    """No manifest can be used, and there is neither a channel nor an ingress."""
    bad, config = plan_all(loaded(b=text(BAD_URL | {"spec": 3}))), load(CONFIG, filename="f").config
    with pytest.raises(ConfigError, match=r"(?s)b\.yaml:.*spec: need a mapping.*nothing else is configured to run"):
        check_runs(bad, config)
    check_runs(plan_all(loaded(a=text(GOOD), b=BROKEN)), config)
    check_runs(plan_all(loaded()), config)
    check_runs(bad, load(f"{CONFIG}ingress: {{listen: '127.0.0.1:0'}}\n", filename="f").config)


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        (Ref(kind="Subscription", name="billing", namespace="shop"), "no Subscription of the manifests is called 'shop/billing'"),
        (Ref(kind="Subscription", name="late", namespace="shop"), "its channel: no KafkaChannel of the manifests"),
        (Ref(kind="KafkaChannel", name="two", namespace="shop"), "no KafkaChannel of the manifests is called 'shop/two'"),
        (Ref(kind="Subscription", name="u-3"), "no subscription of this configuration is called 'u-3'"),
        (Ref(kind="Channel", name="shop.two.u-3"), "no channel of this configuration is called 'shop.two.u-3'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_reset_that_names_a_refused_manifest_says_so(ref: Ref, told: str) -> None:
    """Not that there is no such thing."""
    late = {
        "apiVersion": "messaging.knative.dev/v1", "kind": "Subscription",
        "metadata": {"name": "late", "namespace": "shop", "uid": "u-9"},
        "spec": {"channel": {"kind": "KafkaChannel", "name": "two"}},
    }  # fmt: skip
    mapper = ref_mapper_of(loaded(a=text(GOOD, late), b=text({**TWO, "spec": 3})))

    with pytest.raises(UnknownRefError) as caught:
        mapper.map(ref)

    assert told in str(caught.value)
    assert str(caught.value).endswith(
        "; it may be in a manifest that cannot be used, which has to be mended first: b.yaml:6: spec: need a mapping, got 3"
    )


# -- any text ---------------------------------------------------------------------------------------------------------------

_FULL: dict[str, Any] = {
    **channel("two", "u-3", "u-4"),
    "spec": {
        "numPartitions": 3,
        "delivery": {
            "retry": 3,
            "backoffDelay": "PT1S",
            "deadLetterSink": {"ref": {"kind": "Service", "name": "x"}, "uri": "/p"},
        },
        "subscribers": [
            {
                "uid": "u-3",
                "replyUri": "http://a",
                "delivery": {"format": "json", "deadLetterSink": {"uri": "http://d"}},
            },
            {"uid": "u-4", "name": "n", "generation": 1, "subscriberUri": "http://a", "subscriberCACerts": "PEM"},
        ],
    },
    "status": {"deadLetterSinkUri": "http://broker"},
}
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just([]), st.just({}), st.just({"uri": "{}"}),
    st.sampled_from(["..", "a/b", "u-1", "http://[", "http://h:x", "{name}", "\u2028", "PT99999999999999999999S", [[]], [{}]]),
)  # fmt: skip


def _places(value: Any, *path: str | int) -> list[tuple[str | int, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in below for found in _places(one, *path, key))]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """Return the manifest with some of its parts taken out, renamed or replaced."""
    root: dict[str, Any] = {"it": copy.deepcopy(_FULL)}
    for _ in range(draw(st.integers(1, 3))):
        if not root:
            break
        *before, last = draw(st.sampled_from(_places(root)[1:]))
        holder: Any = root
        for key in before:
            holder = holder[key]
        how = draw(st.sampled_from(["drop", "replace", "rename"]))
        if how == "replace":
            holder[last] = draw(_VALUES)
        else:
            value = holder.pop(last)
            if how == "rename" and isinstance(holder, dict):
                holder[draw(st.text(max_size=8))] = value
    return root.get("it")


@cache
def _before() -> ProcessPlan:
    return plan(a=text(GOOD), b=text(_FULL))


def _plans(written: str) -> None:
    before = _before()
    found = keeping(before, plan(a=text(GOOD), b=written))
    assert {"shop.good.u-1", "shop.good.u-2"} <= found.channels.keys()
    assert all(one.manifest.file == "b.yaml" and one.manifest.problem for one in found.refused)
    assert changes(before, found).told() is not None


@pytest.mark.slow
@settings(max_examples=50)
@given(mutated())
def test_a_manifest_with_changed_parts_raises_nothing_but_its_own_problem(tree: Any) -> None:
    """The other file runs, with any content of this one, now and before."""
    _plans(yaml.safe_dump(tree))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.data())
def test_a_manifest_with_changed_letters_raises_nothing_but_its_own_problem(data: st.DataObject) -> None:
    """Pieces are cut out, doubled, or put in."""
    written = text(_FULL, channel("more", "u-7"))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(written)))
        end = data.draw(st.integers(start, min(len(written), start + 40)))
        piece = data.draw(
            st.sampled_from(["", "---\n", "\t", "[", "&a ", "*a", "!", '"\\U00990000"', "\x00", "- ", ": ", "<<: "])
        )
        written = written[:start] + piece + written[end:]
    _plans(written)
