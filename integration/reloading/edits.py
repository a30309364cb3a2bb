"""Random edits of a configuration: what they leave behind, and what is to come of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

#: What is to come of an edit.
APPLIED, REFUSED, ROLLED_BACK = "applied", "refused", "rolled-back"

Tree = dict[str, Any]


@dataclass(frozen=True)
class Edit:
    """A text to be put in the place of the configuration; None: the file goes."""

    name: str
    text: str | None
    expected: str
    tree: Tree  # what is to run afterwards


class Editor:
    """Makes edits of what ran before, one after the other; the same seed makes the same ones."""

    def __init__(self, tree: Tree, seed: int) -> None:
        self.tree = tree
        self._rng = random.Random(seed)
        self._number = 0
        self._gone = False

    def next(self) -> Edit:
        """Return the next edit; two out of three are good."""
        self._number += 1
        if self._rng.random() < 2 / 3:
            return self._good()
        return self._bad()

    # -- good ones ---------------------------------------------------------------------------------------------------

    def _good(self) -> Edit:
        kinds: list[Callable[[Tree], str]] = [
            self._workers, self._sizes, self._times, self._options, self._rate, self._come_or_go, self._topics,
            self._coordinator, self._on_error, self._member, self._controller, self._several,
        ]  # fmt: skip
        while True:
            tree = deepcopy(self.tree)
            name = self._rng.choice(kinds)(tree)
            if tree != self.tree:
                self.tree, self._gone = tree, False
                return Edit(name, text_of(tree), APPLIED, tree)

    def _edited(self, tree: Tree) -> Tree:
        channel: Tree = tree["channels"][self._rng.choice(["edited", "paced"])]
        return channel

    def _workers(self, tree: Tree) -> str:
        self._edited(tree)["workers"] = self._rng.randint(1, 8)
        return "workers"

    def _sizes(self, tree: Tree) -> str:
        sizes: list[tuple[str, list[Any]]] = [
            ("max_batch_records", [1, 10, 2000]),
            ("batch_bytes", ["64KiB", "1MiB"]),
            ("prefetch_bytes", ["8MiB", "64MiB"]),
            ("idle_wait", ["20ms", "100ms"]),
        ]
        key, values = self._rng.choice(sizes)
        self._edited(tree)["reader"][key] = self._rng.choice(values)
        return key

    def _times(self, tree: Tree) -> str:
        key = self._rng.choice(["idle_time", "shutdown_timeout"])
        self._edited(tree)[key] = f"{self._rng.randint(1, 30)}s"
        return key

    def _options(self, tree: Tree) -> str:
        tree["channels"]["edited"]["processor"]["options"]["label"] = f"v{self._number}"
        return "options"

    def _rate(self, tree: Tree) -> str:
        options: Tree = tree["channels"]["paced"]["processor"]["options"]
        options["max_read_rate"] = f"{self._rng.choice([500, 1000, 5000])}/s"
        return "max_read_rate"

    def _come_or_go(self, tree: Tree) -> str:
        if tree["channels"].pop("comes", None) is None:
            tree["channels"]["comes"] = deepcopy(self._comes)
            return "a channel comes"
        return "a channel goes"

    _comes: Tree

    def with_one_that_comes(self, channel: Tree) -> Editor:
        """Let edits add and remove `channel` too, as `comes`."""
        self._comes = channel
        return self

    def _topics(self, tree: Tree) -> str:
        topics: list[str] = tree["channels"]["edited"]["topics"]
        tree["channels"]["edited"]["topics"] = [topics[0]] if len(topics) > 1 else [topics[0], f"{topics[0]}-more"]
        return "topics"

    def _coordinator(self, tree: Tree) -> str:
        tree["channels"]["edited"]["coordinator"] = self._rng.choice(
            [{"type": "dynamic"}, {"type": "fixed-count", "count": 9}]
        )
        return "coordinator"

    def _on_error(self, tree: Tree) -> str:
        self._edited(tree)["on_error"] = {"max_attempts": self._rng.randint(0, 20)}
        return "on_error"

    def _member(self, tree: Tree) -> str:
        tree["channels"]["edited"]["consumer_id"] = self._rng.choice([None, "one", "two"])
        return "consumer_id"

    def _controller(self, tree: Tree) -> str:
        tree["controller"]["rebalance_interval"] = f"{self._rng.randint(20, 90)}s"
        return "controller"

    def _several(self, tree: Tree) -> str:
        return " and ".join([self._workers(tree), self._sizes(tree), self._options(tree), self._come_or_go(tree)])

    # -- bad ones ----------------------------------------------------------------------------------------------------

    def _bad(self) -> Edit:
        kinds: list[tuple[str, Callable[[], str | None], str]] = [
            ("broken YAML", lambda: text_of(self.tree) + "  - ][\n", REFUSED),
            ("cut off", self._cut_off, REFUSED),
            ("empty", lambda: "", REFUSED),
            ("gone", lambda: None, REFUSED),
            ("not UTF-8", lambda: text_of(self.tree) + "# \udcff\n", REFUSED),
            ("unknown key", lambda: self._with("channels", "edited", "workrs", 3), REFUSED),
            ("unknown section", lambda: self._with("chanels", {}), REFUSED),
            ("wrong type", lambda: self._with("channels", "edited", "workers", "many"), REFUSED),
            ("impossible value", lambda: self._with("channels", "paced", "workers", 0), REFUSED),
            ("no unit", lambda: self._with("controller", "rebalance_interval", 30), REFUSED),
            ("no such processor", lambda: self._with("channels", "edited", "processor", "type", "noting:No"), REFUSED),
            ("no such module", lambda: self._with("channels", "edited", "processor", "type", "nothing:No"), REFUSED),
            ("bad option", lambda: self._with("channels", "edited", "processor", "options", "fil", 1), REFUSED),
            ("bad rate", lambda: self._with("channels", "paced", "processor", "options", "max_read_rate", "fast"), REFUSED),
            ("bad property", lambda: self._with("kafka", "group.id", "x"), REFUSED),
            ("the same group twice", self._other_group, REFUSED),
            ("one that cannot open", self._cannot_open, ROLLED_BACK),
            ("an edit that cannot open", self._edit_cannot_open, ROLLED_BACK),
        ]  # fmt: skip
        name, make, expected = self._rng.choice(kinds)
        if name == "gone" and self._gone:  # it is already
            return self._bad()
        text = make()
        self._gone = text is None
        return Edit(name, None if text is None else f"{text}\n# {self._number}\n", expected, self.tree)

    def _with(self, *path: Any) -> str:
        tree = here = deepcopy(self.tree)
        *keys, key, value = path
        for one in keys:
            here = here.setdefault(one, {})
        here[key] = value
        return text_of(tree)

    def _cut_off(self) -> str:
        text = text_of(self.tree)
        return text[: text.index("processor:") + len("processor:")] + " {type"

    def _other_group(self) -> str:
        """Two members of one name in one group cannot be."""
        tree = deepcopy(self.tree)
        for name in ("edited", "paced"):
            tree["channels"][name] |= {"group": "same", "consumer_id": "same"}
        return text_of(tree)

    def _cannot_open(self) -> str:
        tree = deepcopy(self.tree)
        tree["channels"]["bad"] = deepcopy(self._comes)
        tree["channels"]["bad"]["group"] += "-bad"
        tree["channels"]["bad"]["processor"]["options"]["broken"] = True
        return text_of(tree)

    def _edit_cannot_open(self) -> str:
        """Beside what could be done well: all of it is taken back."""
        tree = deepcopy(self.tree)
        tree["channels"]["edited"]["processor"]["options"]["broken"] = True
        tree["channels"]["paced"]["workers"] = 9
        return text_of(tree)


def text_of(tree: Tree) -> str:
    """Return the configuration as a file has it."""
    text: str = yaml.safe_dump(tree, sort_keys=False)
    return text
