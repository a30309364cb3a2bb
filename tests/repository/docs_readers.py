"""Runs the `python` blocks of a page, and has its `yaml` blocks read by what reads such a thing, told by their keys.

Python blocks run one after the other in one namespace; processors that they define take part in a group of
`inbound.testing.World`. Where a line ends in a comment with a value, it has that value:
`open_ranges(items)  # {("orders", 3): [(150, 200)]}: begun`. A yaml block of a kind unknown here is refused.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from inbound.admin import routes as served
from inbound.cli.main import parser
from inbound.cli.run.check import check
from inbound.clock import SystemClock
from inbound.config import Config, load_policy, parse_manifests
from inbound.config.channel_models import ChannelConfig
from inbound.config.listener_models import PolicyConfig
from inbound.ledger import FilesLedger, Range, Settled
from inbound.processors.base import BatchEventProcessor
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.simple import SimpleOptions
from inbound.testing import World
from tests.repository.docs_blocks import ROOT, Block
from tests.repository.docs_shell import refusal

#: What the admin port serves.
GET_PATHS = set(re.findall(r'"(/[a-z/]*)": \(', Path(served.__file__).read_text()))
#: Keys of pods and of Prometheus' configuration: arguments, pages and files of ours that are named below them are there.
FOREIGN = {"terminationGracePeriodSeconds", "containers", "scrape_configs", "rule_files"}
#: The mounted secret that examples name, with what they say is in it.
SECRET = {"user": "orders", "password": "pw", "protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "ca.crt": ""}
#: Parts of the configuration that may be shown alone: their models, and where they stand in a whole one.
PIECES: tuple[tuple[type[BaseModel], tuple[str, ...]], ...] = (
    (Config, ()),
    (ChannelConfig, ("channels", "orders")),
    (SimpleOptions, ("channels", "orders", "processor", "options")),
)


def furnish(folder: Path, blocks: list[Block]) -> None:
    """Put into `folder` the files that a page's blocks are, those that its examples name, and its programs as `my_module.py`."""
    for name in SECRET:
        _write(folder / "etc/inbound/kafka" / name, SECRET[name])
    named = r"(?<![\w./-])(?:/(?=etc/|run/|secrets/)[\w./-]+|[\w-]+\.(?:pem|key)\b)"
    for name in re.findall(named, "\n".join(block.text for block in blocks)):
        if not (folder / name.lstrip("/")).exists():
            _write(folder / name.lstrip("/"), "not-a-secret")
    for path in (path for ending in ("pem", "crt", "key") for path in folder.rglob(f"*.{ending}")):
        shutil.copy(ROOT / "tests" / "certificates" / "server.pem", path)
    _write(folder / "my_module.py", "\n".join(b.text for b in blocks if b.language == "python" and not b.annotation))
    for block in blocks:
        if block.file and block.language in ("python", "yaml"):
            _write(folder / block.file, rooted(block.text, folder))


def rooted(text: str, folder: Path) -> str:
    """Return the text with its absolute paths below `folder`."""
    return re.sub(r"(?<![\w./-])/(etc|run|secrets)/", rf"{folder}/\1/", text)


def check_yaml(block: Block, folder: Path) -> None:
    """Check a block in the folder of its page, by what reads such a thing.

    Raises:
        Exception: it is wrong, or of no kind that is known.
    """
    text = rooted(block.text, folder)
    keys = re.findall(r"(?m)^([\w.-]+):", text)
    # A top-level key that stands there several times: each is what may stand there.
    parts = re.split(r"(?m)^(?=[\w.-]+:)", text)[1:] if len(set(keys)) == 1 < len(keys) else [text]
    for part in parts:
        for tree in yaml.safe_load_all(part):
            if (whole := _whole(tree, part, folder)) is not None:
                (folder / "docs.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
                assert check(parser().parse_args(["check", "-c", str(folder / "docs.yaml")])) == 0


def _whole(tree: dict[str, Any], text: str, folder: Path) -> dict[str, Any] | None:
    """Return a whole configuration around what is shown; None: it is of another kind, and was checked."""
    keys = tree.keys()
    if tree.get("kind") in ("KafkaChannel", "Subscription", "ResetOffset"):
        found = parse_manifests({"shown.yaml": text})
        assert len(found.channels) + len(found.subscriptions) + len(found.resets) == 1, found.notes
        assert not (problems := [one.problem for one in found.resets if one.problem]), problems
        _write(folder / "shown.yaml", text)
        return {"manifests": {"paths": ["shown.yaml"]}} if found.channels else None
    if tree.get("kind") == "ServiceMonitor" or keys <= FOREIGN:
        for container in tree.get("containers", ()):
            assert (why := refusal(container.get("args", ["--help"]))) is None, why
        assert (asked := set(re.findall(r"(?:httpGet: {path|metrics_path): ([^,}\n]+)", text))) <= GET_PATHS, asked
        assert set(tree.get("rule_files", ())) <= {path.name for path in (ROOT / "docs").iterdir()}, tree["rule_files"]
    elif keys & {"allow", "deny"} and keys <= PolicyConfig.model_fields.keys():
        load_policy(text, "policy.yaml")
    else:
        piece = next((path for model, path in PIECES if keys <= model.model_fields.keys()), None)
        assert piece is not None, f"nothing is known that has the keys {', '.join(sorted(keys))}"
        return _configuration(tree, piece, folder)
    return None


def _configuration(tree: dict[str, Any], path: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Complete a piece of a configuration, with the files and folders of manifests that it names."""
    for name in reversed(path):
        tree = {name: tree}
    if not tree.keys() & {"channels", "manifests", "ingress"}:
        tree["channels"] = {"orders": {}}
    for name, channel in tree.get("channels", {}).items():
        channel.setdefault("topics", list(channel.get("coordinator", {}).get("partitions", [name])))
        channel.setdefault("group", f"{name}-svc")
        if "subscriptions" not in channel:
            channel.setdefault("processor", {"options": {"sinks": [{"type": "jsonl", "path": "./orders.jsonl"}]}})
            channel["processor"].setdefault("type", "simple")
    for place in (folder / one for one in tree.get("manifests", {}).get("paths", ())):
        if not place.exists():
            _write(place if place.suffix else place / "kept", "")
    return tree


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


EVENTS = 3
#: A statement, and the literal that a comment claims for it, which words behind a colon may follow.
CLAIM = re.compile(r"""(?m)^(\S.*?)  # ([\[({\d"'].*?)(?:: [a-z].*)?$""")


def run_python(block: Block, folder: Path, namespace: dict[str, Any]) -> None:
    """Run a block in the folder of its page, which is the working folder; errors name lines of the page."""
    if block.annotation == "run":
        ledger(folder)
    before = dict(namespace)
    text = CLAIM.sub(r"assert (\1) == (\2), (\1)", rooted(block.text, folder))
    exec(compile("\n" * block.line + text, block.page, "exec"), namespace)
    for name, made in (new for new in namespace.items() if new[1] is not before.get(new[0])):
        if isinstance(made, type) and made.__module__ == "docs" and issubclass(made, BatchEventProcessor):
            if not issubclass(made, DispatchProcessor):  # it needs a subscriber
                in_world(made())
        elif name.startswith("test_"):
            made()


def in_world(processor: BatchEventProcessor) -> None:
    """Give a processor CloudEvents in one partition; it must commit all of them."""
    world = World()
    world.kafka.create_topic("orders", 1)
    event = {"specversion": b"1.0", "id": b"1", "source": b"/me", "type": b"paid"}
    headers = [("content-type", b"application/json"), *((f"ce_{key}", value) for key, value in event.items())]
    world.kafka.publish("orders", 0, [b'{"sum": %d}' % n for n in range(EVENTS)], key=b"acme", headers=headers)
    world.join("a", processor)
    world.run_until(lambda: world.commits().get(0) == EVENTS, within=60)
    processor.close()


def ledger(folder: Path) -> None:
    """`ledger/`: a process has died with offsets 150 to 199 of orders/3 in hand, and its successor has not committed them yet."""
    dead = FilesLedger(folder / "ledger", "orders-svc", "host-1", SystemClock())
    dead.begun(Range("orders", 3, 1, 100, 150, 50))
    dead.settled([Settled("orders", 3, 1, 150, "landed", 1)])
    dead.begun(Range("orders", 3, 1, 150, 200, 50))
    file = dead.path
    assert file is not None
    written = file.read_bytes()
    dead.close()
    file.write_bytes(written)  # without its end
