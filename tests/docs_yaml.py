"""What a `yaml` block of the documentation is, and what reads it.

Told by its keys: a configuration, whole or a piece of one; a manifest of Knative's; a policy; an object of Kubernetes, or a
piece of a pod; Prometheus' configuration; services for `docker compose`. What is none of these is refused.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from inbound.cli.check import check
from inbound.cli.main import parser
from inbound.config import Config, load_policy, parse_manifests
from inbound.config.channel_models import ChannelConfig
from inbound.config.policy_models import PolicyConfig
from inbound.errors import ConfigError
from inbound.http import pages as served
from inbound.processors.simple import SimpleOptions
from tests.docs_blocks import ROOT, Block
from tests.docs_commands import refusal
from tests.test_metrics_table import series_named, unknown

_CERTIFICATES = ROOT / "tests" / "certificates"
#: What the admin port serves.
GET_PATHS = set(re.findall(r'"(/[a-z/]*)": \(self\._', Path(served.__file__).read_text()))
#: What stands at absolute paths in the documentation is put below the page's folder.
_OUTSIDE = re.compile(r"(?<![\w./-])/(etc|run|secrets|var|srv)/")
#: Files that examples name, and what they hold here.
STAND_INS = {
    "etc/inbound/kafka/user": "orders",
    "etc/inbound/kafka/password": "not-a-secret",
    "etc/inbound/kafka/protocol": "SASL_SSL",
    "etc/inbound/kafka/sasl.mechanism": "SCRAM-SHA-512",
    "etc/inbound/zookeeper/password": "not-a-secret",
    "etc/inbound/profiling-token": "not-a-secret",
    "secrets/token": "not-a-secret",
    "run/secrets/token": "not-a-secret",
    "run/secrets/password": "not-a-secret",
}
CERTIFICATES = {
    "etc/inbound/ca.pem": "ca.pem",
    "etc/inbound/kafka/ca.crt": "ca.pem",
    "etc/inbound/ca.crt": "ca.pem",
    "etc/inbound/tls.crt": "server.pem",
    "etc/inbound/tls.key": "server.pem",
    "etc/inbound/tls/ca.crt": "ca.pem",
    "server.pem": "server.pem",
    "server.key": "server.pem",
    "clients.pem": "ca.pem",
}


def furnish(folder: Path, blocks: list[Block]) -> None:
    """Put into `folder` the files that a page's blocks are, those that its examples name, and its programs as `my_module.py`."""
    for name, text in STAND_INS.items():
        _write(folder / name, text)
    for name, source in CERTIFICATES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_CERTIFICATES / source, folder / name)
    _write(folder / "my_module.py", "\n".join(b.text for b in blocks if b.language == "python" and not b.annotation))
    for block in blocks:
        if block.file and block.language in ("python", "yaml"):
            _write(folder / block.file, rooted(block.text, folder))


def rooted(text: str, folder: Path) -> str:
    """Return the text with its absolute paths below `folder`."""
    return _OUTSIDE.sub(lambda match: f"{folder}/{match[1]}/", text)


def check_yaml(block: Block, folder: Path) -> str:
    """Check a block in the folder of its page, by what reads such a thing; return what it is.

    Raises:
        AssertionError, ConfigError, yaml.YAMLError: it is wrong, or of no kind that is known.
    """
    kinds = set()
    for text in _alternatives(rooted(block.text, folder)):
        for tree in yaml.safe_load_all(text):
            assert isinstance(tree, dict), f"{block}: {tree!r} is no mapping"
            kinds.add(_check(block, tree, text, folder))
    assert len(kinds) == 1, f"{block} is of several kinds: {kinds}"
    return kinds.pop()


def _alternatives(text: str) -> list[str]:
    """Return a text whose top-level key stands there several times as as many texts: it shows what may stand there."""
    keys = re.findall(r"(?m)^([\w.-]+):", text)
    return re.split(r"(?m)^(?=[\w.-]+:)", text)[1:] if len(set(keys)) == 1 < len(keys) else [text]


def _check(block: Block, tree: dict[str, Any], text: str, folder: Path) -> str:
    keys = set(tree)
    if "kind" in keys:
        return _object(block, tree, text, folder)
    if "containers" in keys:
        _pod(tree)
        return "pod"
    if keys <= {"scrape_configs", "rule_files", "global", "alerting"}:
        return _prometheus(tree)
    if keys == {"groups"}:
        return _rules(tree)
    if keys <= {"services", "volumes", "networks", "name"}:
        assert all({"image", "build"} & set(one) for one in tree["services"].values()), (
            f"{block}: a service without image"
        )
        return "compose"
    if keys <= set(PolicyConfig.model_fields) and keys & {"allow", "deny"}:
        load_policy(text, str(block))
        return "policy"
    for part in PIECES:
        if keys <= set(part.model.model_fields):
            _configuration(part.put(tree), block, folder)
            return "configuration"
    raise AssertionError(
        f"{block}: nothing is known that has the keys {', '.join(sorted(keys))}; tests/docs_yaml.py says what is"
    )


class Piece:
    """A part of the configuration that may be shown alone: its model, and how it is put into a whole one."""

    def __init__(self, model: type[BaseModel], *path: str) -> None:
        self.model = model
        self._path = path

    def put(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return a whole configuration around the piece."""
        for name in reversed(self._path):
            tree = {name: tree}
        channels = tree.get("channels")
        if channels is None and not tree.keys() & {"manifests", "ingress"}:
            channels = tree["channels"] = {"orders": {}}
        for name, channel in (channels or {}).items():
            channel.setdefault("topics", list(channel.get("coordinator", {}).get("partitions", [name])))
            channel.setdefault("group", f"{name}-svc")
            if "subscriptions" not in channel:
                channel.setdefault("processor", {"options": {"sinks": [{"type": "jsonl", "path": "./orders.jsonl"}]}})
                channel["processor"].setdefault("type", "simple")
        return tree


PIECES = (
    Piece(Config),
    Piece(ChannelConfig, "channels", "orders"),
    Piece(SimpleOptions, "channels", "orders", "processor", "options"),
)


def _configuration(tree: dict[str, Any], block: Block, folder: Path) -> None:
    """Check it as `inbound check` does: keys, values, plugins and their options, the files that it names."""
    for path in (folder / one for one in tree.get("manifests", {}).get("paths", ())):
        if path.suffix and not path.exists():
            _write(path, "")
        elif not path.suffix:
            path.mkdir(parents=True, exist_ok=True)
    file = folder / "docs.yaml"
    file.write_text(yaml.safe_dump(tree, sort_keys=False))
    try:
        assert check(parser().parse_args(["check", "-c", str(file)])) == 0
    except ConfigError as error:
        raise AssertionError(f"{block}, completed to a whole configuration, is refused:\n{error}") from None


def _object(block: Block, tree: dict[str, Any], text: str, folder: Path) -> str:
    """Knative's kinds by our reader, which says why it leaves one out; others by what each object of Kubernetes has."""
    if tree["kind"] in ("KafkaChannel", "Subscription", "ResetOffset"):
        found = parse_manifests({"shown.yaml": text})
        assert len(found.channels) + len(found.subscriptions) + len(found.resets) == 1, found.notes
        assert [one.problem for one in found.resets if one.problem] == []
        if found.channels:
            _write(folder / "shown.yaml", text)
            _configuration({"manifests": {"paths": ["shown.yaml"]}}, block, folder)
        return str(tree["kind"])
    assert re.fullmatch(r"([a-z0-9.-]+/)?v\d\w*", str(tree.get("apiVersion"))), tree
    assert tree["metadata"]["name"], tree
    for pod in _pods(tree):
        _pod(pod)
    return "object"


def _pods(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if "containers" in tree:
            yield tree
        for value in tree.values():
            yield from _pods(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _pods(value)


def _pod(pod: dict[str, Any]) -> None:
    """Arguments are ones that inbound takes, and probes ask for pages that there are."""
    for container in pod["containers"]:
        words = [*container.get("command", ()), *container.get("args", ())]
        words = words[words.index("inbound") + 1 :] if "inbound" in words else words
        if words:
            assert refusal(words) is None, (words, refusal(words))
        for probe in (container[key] for key in container if key.endswith("Probe")):
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in GET_PATHS, probe


def _prometheus(tree: dict[str, Any]) -> str:
    """The rules are files of docs/, and where a job names a path it is one that is served."""
    for name in tree.get("rule_files", ()):
        assert list((ROOT / "docs").rglob(Path(name).name)), f"there is no {name} in docs/"
    for job in tree.get("scrape_configs", ()):
        assert job["job_name"], job
        assert job.get("metrics_path", "/metrics") in GET_PATHS, job
    return "prometheus"


def _rules(tree: dict[str, Any]) -> str:
    """Rules for alerts: each asks for metrics that there are."""
    for rule in (rule for group in tree["groups"] for rule in group["rules"]):
        assert series_named(rule["expr"]), rule
        assert unknown(series_named(rule["expr"])) == [], rule
    return "rules"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
