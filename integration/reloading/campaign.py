"""So many random edits of a consumer under load, and the figures that come of it."""

from __future__ import annotations

import sys
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

from inbound.embedded import EmbeddedCluster
from integration.reloading.edits import APPLIED, Edit, Editor, text_of
from integration.reloading.scene import STEADY, ReloadScene
from tests.waiting import until

#: Memory may grow by so much, in KiB: caches and the allocator's reserve, not one edit's worth for each.
GROWTH = 24 * 1024


@dataclass
class Figures:
    """What came of the edits."""

    edits: int
    seconds: float
    applied: int
    refused: int
    rolled_back: int
    reload_lost: int  # offsets that nobody was handed
    reload_repeats: int  # offsets that were delivered twice
    bad_edits_accepted: int
    untouched_pause_batches: int  # that the channel missed which no edit touched, at the worst moment
    threads: tuple[int, int]  # after a tenth of the edits, and at the end, with the same configuration
    memory_mib: tuple[float, float]
    exit_code: int

    @property
    def missed(self) -> list[str]:
        """Return the figures that are not as they must be."""
        goals = {
            "reload_lost": self.reload_lost == 0,
            "reload_repeats": self.reload_repeats == 0,
            "bad_edits_accepted": self.bad_edits_accepted == 0,
            "untouched_pause_batches": self.untouched_pause_batches <= 1,
            "threads": self.threads[1] <= self.threads[0],
            "memory_mib": self.memory_mib[1] <= self.memory_mib[0] + GROWTH / 1024,
            "exit_code": self.exit_code == 0,
        }
        return [name for name, reached in goals.items() if not reached]

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON takes it."""
        return {**asdict(self), "missed": self.missed}


def play(cluster: EmbeddedCluster, folder: Path, edits: int, seed: int) -> Figures:
    """Make so many edits. Raises AssertionError: one of them did not come to its end."""
    scene = ReloadScene(cluster, folder, seed)
    try:
        tree = scene.tree()
        whole = deepcopy(tree)
        whole["channels"]["comes"] = scene.channel("comes")
        whole["channels"]["edited"]["topics"] = [scene.topics["edited"], scene.topics["more"]]
        scene.begin(tree)
        editor = Editor(tree, seed).with_one_that_comes(scene.channel("comes"))
        began, early = time.monotonic(), scene.size()
        for number in range(edits):
            if number == max(1, edits // 10):
                early = _rest(scene, editor, whole)
            edit = editor.next()
            scene.make(edit)
            if (number + 1) % 25 == 0:
                print(f"{number + 1} edits, {time.monotonic() - began:.0f} s", file=sys.stderr)
        late = _rest(scene, editor, whole)
        seconds, said = time.monotonic() - began, scene.reload()
        scene.settle()
        code = scene.stop()
        lost, repeats = scene.account()
        return Figures(
            edits=edits, seconds=round(seconds, 1), applied=said["applied_total"], refused=said["refused_total"],
            rolled_back=said["rolled_back_total"], reload_lost=lost, reload_repeats=repeats,
            bad_edits_accepted=scene.accepted,
            untouched_pause_batches=int(scene.latest("steady", skip=4) / STEADY),
            threads=(early[0], late[0]),
            memory_mib=(round(early[1] / 1024, 1), round(late[1] / 1024, 1)),
            exit_code=code,
        )  # fmt: skip
    finally:
        scene.close()


def _rest(scene: ReloadScene, editor: Editor, whole: dict[str, object]) -> tuple[int, int]:
    """Let everything run as it is configured, and return how large the process is then."""
    tree = deepcopy(whole)
    tree["controller"] = {"join_delay": "1s", "rebalance_interval": "61s" if editor.tree == whole else "60s"}
    editor.tree = tree
    scene.make(Edit("all of it", text_of(tree), APPLIED, tree))
    # A channel that has only just been added may not have all its threads before it reads.
    noted = {name: scene.noted(name) for name in scene.groups}
    until(
        lambda: all(scene.noted(name) > count for name, count in noted.items()),
        90, lambda: f"every channel reads: {noted} before\n{scene.log()[-3000:]}",
    )  # fmt: skip
    sizes: list[tuple[int, int]] = []

    def steady() -> bool:
        sizes.append(scene.size())
        time.sleep(0.5)
        return len(sizes) > 4 and len({threads for threads, _ in sizes[-4:]}) == 1

    until(steady, 90, lambda: f"the number of threads stays: {sizes[-4:]}")
    return sizes[-1]
