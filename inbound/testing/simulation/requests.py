"""How often processes ask ZooKeeper where a partition cannot be had: it is tried rarely, also while all else is at rest."""

from __future__ import annotations

from collections import Counter

from inbound.testing.simulation.stage import Stage
from inbound.testing.zookeeper_tree import Commit

#: So many requests are enough for a member at rest, in a time that is shorter than anybody waits before such a partition is
#: tried again,
MOST = 70
#: and so many more for each claim: for itself, and for the look at what is held afterwards.
OF_A_CLAIM = 12


class Requests:
    """Counts them from `begin` on, and judges them in `check`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._commits: Counter[str] = Counter()  # that were executed, by process: there is something to do for them
        self._asked: dict[str, int] = {}
        self._from = stage.world.clock.now()
        self._tenures = [judge.tenures() for judge in stage.judges()]
        stage.ensemble.observers.append(self._executed)

    def begin(self) -> None:
        """Count from now on."""
        self._from = self._stage.world.clock.now()
        self._asked = {c.name: self._so_far(c.name) for c in self._stage.living()}
        self._tenures = [judge.tenures() for judge in self._stage.judges()]

    def check(self) -> None:
        """Judge what was asked since then. A topic that is found to be another one, say, is claimed in that time."""
        claims, time = 0, self._stage.world.clock.now() - self._from
        for judge, before in zip(self._stage.judges(), self._tenures, strict=True):
            for tp, tenure in judge.tenures().items():
                new = tenure - before.get(tp, 0)
                claims += min(new, 1) if tp in judge.refused else new
        for name in [c.name for c in self._stage.living() if c.name in self._asked]:
            asked = self._so_far(name) - self._asked[name]
            if asked > MOST + OF_A_CLAIM * claims:
                but = f" but {claims} claims" if claims else ""
                self._stage.judge.violated(
                    f"{name} has asked ZooKeeper {asked} times in {time:.1f} s, with nothing to do{but}"
                )

    def _so_far(self, name: str) -> int:
        return self._stage.world.consumers[name].zk.requests - self._commits[name]

    def _executed(self, commit: Commit) -> None:
        name = self._stage.ensemble.clients_of.get(commit.session)
        families = {path.split("/")[3] for kind, path in commit.changed if kind == "data" and path.count("/") == 5}
        if name is not None and not commit.expired and "offsets" in families and "owners" not in families:
            self._commits[name] += 1
