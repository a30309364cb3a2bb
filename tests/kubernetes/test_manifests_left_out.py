"""`inbound manifests` where some of the KafkaChannels cannot be used: the others are printed, and nothing stops in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from inbound.cli.main import main
from inbound.plan.subscriptions import read_subscriptions
from tests.cli.test_manifests_command import CHANNEL, Printed
from tests.kubernetes.kubernetes_objects import environment_of, loaded_as_in_the_pod, objects_in, write_config


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in a folder with these files; return exit code, output and messages."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **files: str) -> tuple[int, str, str]:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        code = main(["manifests", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_what_cannot_be_used_stops_itself(printed: Printed) -> None:
    """The others are printed, an exit code of its own says that something is not, and standard error what."""
    good = CHANNEL.replace("NAME", "good")
    files = {"a": good, "b": CHANNEL.replace("uid: u-NAME, ", "").replace("NAME", "bad"), "c": "kind: [\n"}

    code, text, errors = printed("-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml", **files)
    alone = printed("-f", "a.yaml")

    assert (code, text, alone[0]) == (3, alone[1], 0)
    assert [line for line in errors.splitlines() if line.startswith("error")] == [
        "error: KafkaChannel shop/bad, subscriber spec.subscribers[0]: b.yaml:4: spec.subscribers[0].uid: missing; this key is "
        "required",
        "error: c.yaml: c.yaml:2: not YAML: expected the node content, but found '<stream end>' (while parsing a flow node, line "
        "2)",
    ]


def test_the_pods_of_a_channel_get_a_subscriber_that_cannot_be_used_as_it_stands(
    printed: Printed, tmp_path: Path
) -> None:
    """They stop it alone, or go on with what they had: without it they would let it leave its group."""
    subscribers = [{"uid": "u-1", "subscriberUrl": "http://a"}, {"uid": "u-2", "subscriberUri": "http://b"}, 3]
    channel = yaml.safe_load(CHANNEL.replace("NAME", "one"))
    channel["spec"]["subscribers"] = subscribers

    code, text, _ = printed("-f", "one.yaml", one=yaml.safe_dump(channel))

    objects = objects_in(text)
    loaded = loaded_as_in_the_pod(write_config(objects, "inbound-one", tmp_path), environment_of(objects[1]))
    written = yaml.safe_load((tmp_path / "kafkachannel.yaml").read_text())["spec"]["subscribers"]
    assert (code, written, list(read_subscriptions(loaded).found)) == (3, subscribers, ["shop.one.u-2"])


def test_where_the_cluster_has_resolved_dead_letters_to_is_in_the_pod(printed: Printed, tmp_path: Path) -> None:
    """Of the status nothing else counts."""
    channel = yaml.safe_load(CHANNEL.replace("NAME", "one"))
    channel["spec"]["delivery"] = {"deadLetterSink": {"ref": {"kind": "Broker", "name": "b"}}}
    channel["status"] = {"deadLetterSinkUri": "http://broker/b", "observedGeneration": 3}

    code, text, _ = printed("-f", "one.yaml", one=yaml.safe_dump(channel))

    objects = objects_in(text)
    loaded = loaded_as_in_the_pod(write_config(objects, "inbound-one", tmp_path), environment_of(objects[1]))
    (made,) = read_subscriptions(loaded).found.values()
    sink = made.options.delivery.deadLetterSink
    assert (code, sink and sink.uri, "observedGeneration" in text) == (0, "http://broker/b", False)
