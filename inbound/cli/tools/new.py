"""`inbound new processor` writes a processor, its configuration and its test."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path
from string import Template

from inbound.cli.shared.command import Command, argument
from inbound.errors import ConfigError, InboundError
from inbound.plan.plugins import BUILT_IN

# The files, with $name, $cls and $topic to be filled in.

_MODULE = Template('''\
"""The `$name` processor: counts the events of each type.

From this folder:

    python -m pytest                # test_$name.py, on fakes: needs no servers
    inbound check                   # inbound.yaml and this file
    inbound cluster up --detach     # a real Kafka and ZooKeeper, if you have none; put their addresses into inbound.yaml
    inbound publish $topic --create --partitions 4 --generate 100
    inbound run                     # until Ctrl-C

Before you change it:

- Delivery is at least once. After a crash the batch in flight is delivered again: make its effect the same the second time;
  or write the offset together with the effect.
- `on_next_batch` is called in `workers` threads at once, for different partitions: lock what they share. For one
  partition it is called for one batch after the other, in offset order.
- `BatchResponse.advance()` commits; `.advance(offset)` commits what is before it; `.revert(wait=5)` reads the batch
  again after 5 s. An error does that too, and waits longer each time; see `on_error` in the configuration.
- During long work check `batch.lost` (another member owns the partition) and `context.stopping` (finish soon).
- `open`, `close`, `on_idle` and more: see the base class, inbound.BatchEventProcessor.

To use it by name from anywhere, make it a distribution; then `type: $name` is enough. In its pyproject.toml:

    [project.entry-points."inbound.processors"]
    $name = "$name:$cls"
"""

from __future__ import annotations

import threading
from collections import Counter

from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from pydantic import BaseModel, ConfigDict, Field


class ${cls}Options(BaseModel):
    """The keys of `processor.options`, checked before anything starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ignore: tuple[str, ...] = Field(default=(), description="Types of events that are not counted.")


class $cls(BatchEventProcessor):
    """Counts the events of each type, and logs the sums after each commit."""

    Options = ${cls}Options

    def open(self, context: Context) -> None:
        self.options: ${cls}Options = context.options
        self.log = context.log
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        for record, reason in batch.undecodable:
            self.log.warning("%s/%d@%d is no event: %s", batch.topic, batch.partition, record.offset, reason)
        types = [event.get_type() for event in batch.events]
        with self.lock:
            self.counts.update(found for found in types if found not in self.options.ignore)
        return BatchResponse.advance()

    def on_batch_processed(self, batch: Batch) -> None:
        with self.lock:
            self.log.info("counted so far: %s", dict(self.counts))
''')

_TEST = Template('''\
"""The `$name` processor on a Kafka and a ZooKeeper in memory; time is virtual, so nothing here waits."""

from __future__ import annotations

import json

from inbound.testing import World

from $name import $cls

HEADERS = [("content-type", b"application/cloudevents+json")]


def event(number: int, kind: str) -> bytes:
    """Return a CloudEvent as JSON."""
    return json.dumps({"specversion": "1.0", "id": str(number), "source": "/test", "type": kind}).encode()


def test_every_event_is_counted_and_committed() -> None:
    """Ignored types are committed, but not counted."""
    world = World()
    world.kafka.create_topic("$topic", 2)
    world.kafka.publish("$topic", 0, [event(1, "made"), event(2, "paid"), event(3, "made")], headers=HEADERS)
    world.kafka.publish("$topic", 1, [event(4, "seen")], headers=HEADERS)
    processor = $cls()

    world.join("one", processor, topics=["$topic"], options={"ignore": ["seen"]})
    world.run(5)  # seconds of virtual time

    assert processor.counts == {"made": 2, "paid": 1}
    assert world.commits("$topic") == {0: 3, 1: 1}


def test_a_record_that_is_no_event_is_skipped() -> None:
    """A bad record does not block the records after it."""
    world = World()
    world.kafka.create_topic("$topic", 1)
    world.kafka.publish("$topic", 0, [b"{no event", event(1, "made")], headers=HEADERS)
    processor = $cls()

    world.join("one", processor, topics=["$topic"])
    world.run(5)

    assert processor.counts == {"made": 1}
    assert world.commits("$topic") == {0: 2}
''')

_CONFIG = Template("""\
# Runs the `$name` processor. `inbound check --show` prints every setting, and `inbound schema` the JSON Schema for editors.
zookeeper: {hosts: "127.0.0.1:2181"}
kafka: {bootstrap.servers: "127.0.0.1:9092"}
ledger: {path: ./ledger}

channels:
  $name:
    topics: [$topic]
    group: $name
    processor:
      type: "$name:$cls"             # $name.py, beside this file
      options: {ignore: []}
""")


def new_processor(args: argparse.Namespace) -> int:
    """Write the files. Returns the exit code."""
    name: str = args.name
    _check_name(name)
    folder: Path = args.folder or Path(name)
    words = {"name": name, "cls": _class_name(name), "topic": name}
    files = {
        folder / f"{name}.py": _MODULE,
        folder / f"test_{name}.py": _TEST,
        folder / "inbound.yaml": _CONFIG,
    }
    if there := [str(path) for path in files if path.exists() or path.is_symlink()]:
        raise ConfigError(
            f"{', '.join(there)}: exists already, so nothing was written; choose another name or --folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(template.substitute(words))
    except OSError as error:
        raise InboundError(f"{error.filename}: cannot be written: {error.strerror}; choose another --folder") from None
    print("\n".join(f"wrote {path}" for path in files))
    print(
        f"next: cd {shlex.quote(str(folder))} && python -m pytest && inbound check; the first lines of {name}.py say how to go on"
    )
    return 0


def _class_name(name: str) -> str:
    words = "".join(part.capitalize() for part in name.split("_"))
    taken = re.findall(r"^(?:from|import) .*\b" + words + r"\b", _MODULE.template + _TEST.template, re.M)
    return f"{words}Processor" if taken else words


def _check_name(name: str) -> None:
    """Refuse a name that cannot be a module, or hides one."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > 60:
        folded = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")[:60]
        near = f"; did you mean {folded}?" if re.match("[a-z]", folded) else ""
        raise ConfigError(
            f"{name!r} cannot name a processor: need a lower-case letter, then letters, digits and single _{near}"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ConfigError(f"{name!r} is a keyword of Python; choose another name, such as {name}_events")
    if name.startswith("test_"):
        raise ConfigError(f"{name!r} is a name that pytest reserves for tests; choose another, such as {name[5:]}")
    if name in BUILT_IN:
        raise ConfigError(f"{name!r} is a processor that comes with inbound; choose another name, such as my_{name}")
    if where := _module_there(name):
        raise ConfigError(
            f"{name}.py would hide the module {name} ({where}); choose another name, such as {name}_events"
        )


def _module_there(name: str) -> str | None:
    """Return where a module is; a folder without `__init__` is none."""
    if name in sys.stdlib_module_names:
        return "of Python's own library"
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return found.origin if found is not None else None


_EXAMPLES = ("inbound new processor orders", "inbound new processor orders --folder services/orders")

COMMAND = Command(
    "new",
    "write a processor to start from",
    description="Write files to start from. There is one kind: `new processor`.",
    examples=_EXAMPLES,
    commands=(
        Command(
            "processor",
            "a processor, its options, its configuration and its test",
            new_processor,
            "Write NAME.py with a processor and its options, test_NAME.py that runs it on fakes, and inbound.yaml. Existing files "
            "are not overwritten.",
            examples=_EXAMPLES,
            arguments=(
                argument(
                    "name", metavar="NAME", help="name of the processor and of its module, such as orders or web_shop"
                ),
                argument(
                    "--folder", type=Path, metavar="FOLDER", help="where to write; made if missing; default: ./NAME"
                ),
            ),
        ),
    ),
)
