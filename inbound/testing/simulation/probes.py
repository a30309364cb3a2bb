"""What is done to a group at rest, one thing at a time: it must change no more than it has to."""

from __future__ import annotations

from collections.abc import Callable

from inbound.coordinators.assignment import share
from inbound.coordinators.zookeeper import Create, Delete
from inbound.testing.simulation.stage import Stage
from inbound.testing.world import Consumer

#: A probe changes what it must within this time, in seconds of virtual time.
PROBE = 6.0
#: A probe lets nobody join a group of this size.
MOST = 6


class Probes:
    """Each is `begin`, and `end` after `PROBE` seconds. The first `begin` finds the group settled."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: How many partitions must move by the end, and to whom they may.
        self._must_move: Callable[[], tuple[int, set[str]]] = lambda: (0, set())
        self._settle()

    def begin(self, probe: str) -> None:
        """Do one thing to the group."""
        stage = self._stage
        stage.scheduler.reseed(f"{stage.plan.seed} probe {probe}")
        stage.judge.say(f"-- probe: {probe}")
        self._settle()
        members = stage.staying()
        if probe == "join" and len(members) < MOST:
            joiner = stage.join()
            due = share(len(members), len(members) + 1, len(stage.partitions()))
            self._must_move = lambda: (due, {joiner.name})
        elif probe == "leave" and (leavers := self._leavers()):
            leaver = leavers[stage.plan.seed % len(leavers)]
            owned = stage.counts()[leaver.name]
            stage.leave(leaver)
            self._must_move = lambda: (owned, {c.name for c in stage.staying()})
        elif probe == "blink":
            for consumer in members:
                stage.ensemble.disconnect(consumer.name)
        elif probe == "outage":
            stage.ensemble.down()
            stage.scheduler.at(stage.world.clock.now() + 1.5, stage.ensemble.up)
        elif probe == "expire all":
            stage.expire(members)
        elif probe == "pause":
            self._pause()

    def end(self) -> None:
        """Judge what came of it."""
        stage, judge = self._stage, self._stage.judge
        if stalled := stage.stalled():
            judge.violated(f"not committed to the end after a probe: {', '.join(stalled)}")
        owners = judge.owners()
        moved = {tp for tp, owner in owners.items() if self._owners.get(tp) != owner}
        claimed = {tp for tp, tenure in judge.tenures().items() if self._tenures.get(tp) != tenure}
        expected, receivers = self._must_move()
        wrong = [str(tp) for tp in moved if owners[tp] not in receivers]
        judged = not (stage.plan.setup.others and receivers) and stage.make_coordinator is None
        # Where rights differ, how few moves would do is no simple sum.
        if judged and (len(moved) != expected or wrong or claimed != moved):
            judge.violated(
                f"{len(moved)} partitions moved and {len(claimed)} were claimed instead of {expected}"
                + (f"; {', '.join(wrong)} should have stayed" if wrong else "")
            )
        stage.check_shares()

    def _leavers(self) -> list[Consumer]:
        """Return those without whom there is still a dynamic member, which takes what the others leave."""
        dynamic = [c for c in self._stage.staying() if self._stage.kinds[c.name] == "dynamic"]
        return [c for c in self._stage.staying() if dynamic != [c]]

    def _settle(self) -> None:
        self._owners, self._tenures = self._stage.judge.owners(), self._stage.judge.tenures()
        self._must_move = lambda: (0, set())

    def _pause(self) -> None:
        """Pause the group; what is published meanwhile is read when it goes on, and not before."""
        stage = self._stage
        now, path = stage.world.clock.now(), stage.paths.pause("operator")
        stage.ensemble.tree.transaction([Create(path)], session=0)

        def publish() -> None:
            handed_out = stage.judge.handed_out
            for tp in stage.partitions():
                stage.kafka.publish(*tp, [b"while paused"])
            stage.scheduler.at(now + 3.5, lambda: go_on(handed_out))

        def go_on(handed_out: int) -> None:
            if stage.judge.handed_out != handed_out:
                stage.judge.violated("something was handed out in a paused group")
            stage.ensemble.tree.transaction([Delete(path)], session=0)

        stage.scheduler.at(now + 1.5, publish)
