"""Runs the `python` blocks of a page, one after the other in one namespace, and what they define.

Processors take part in a group of `inbound.testing.World`. Where a line ends in a comment with a value, it
has that value: `open_ranges(items)  # {("orders", 3): [(150, 200)]}: begun`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from inbound.clock import SystemClock
from inbound.ledger import FilesLedger, Range, Settled
from inbound.processors.base import BatchEventProcessor
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.testing import World
from tests.docs_blocks import Block
from tests.docs_yaml import rooted

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
