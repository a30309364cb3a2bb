"""Carries a plan out on a stage: storm, calm, checks, probes."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from inbound.coordinators.base import ZkCoordinator
from inbound.processors.base import BatchEventProcessor
from inbound.processors.dispatch.attempts import LONGEST_ENDLESS_WAIT
from inbound.testing.kafka import FakeKafka
from inbound.testing.simulation.faults import REFUSALS, begin
from inbound.testing.simulation.judge import AWARE
from inbound.testing.simulation.mirrors import SETTLED
from inbound.testing.simulation.plan import Action, Plan
from inbound.testing.simulation.reset_faults import EVERY_KIND
from inbound.testing.simulation.resting_group import PROBE, Probes, Requests
from inbound.testing.simulation.stage import Stage
from inbound.testing.simulation.witness import Witness
from inbound.topic_partition import TopicPartition

#: A partition is read again after the fault's end within the session timeout and this. Virtual seconds.
GRACE = 1.0
#: After this time, in addition, every member has an even share.
BALANCED = 4.0
#: How long each reset delays its group after the faults; and how much longer a reset may take to end: the third, where no
#: member claims a partition whose owner is gone.
RESET, ENDED, ENDED_WITHOUT = 4.0, 12.0, 40.0
#: A member retries a refused node after the time for which it was refused, plus the first; after the second at the latest.
TRIED, TRIED_AT_LEAST = 6.0, 61.0
#: Refusals that last longer end only when all else is well: other partitions must continue beside them.
LONG = 3.0
#: How long a storm waits for the end of its faults at most.
LONGEST = 8.0


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    plan: Plan
    violations: tuple[str, ...]
    trace: tuple[tuple[float, str], ...] = field(repr=False)
    steps: int
    handed_out: int
    repeated: int
    #: What a witness disagrees with; it is asked where nothing is violated.
    disagreements: tuple[str, ...] = ()
    #: How often each kind of action met a partition in each state: see `stage.STATES`.
    met: Mapping[tuple[str, str], int] = field(default_factory=dict, repr=False)
    error: BaseException | None = field(default=None, repr=False)

    @property
    def failed(self) -> bool:
        return bool(self.violations or self.disagreements)

    @property
    def why(self) -> str:
        """The first violation, or else disagreement."""
        return (
            self.violations[0]
            if self.violations
            else f"the proof disagrees with what was seen: {self.disagreements[0]}"
        )


class SimulatedRun:
    """Everything that happens on a stage, planned as timers beforehand."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._traffic = random.Random(f"{stage.plan.seed} traffic")
        self._long_ends: list[Callable[[], None]] = []
        self._all_right = False  # no node is refused any more, and no member backs off for that
        self._requests = Requests(stage)
        self._unread: list[TopicPartition] = []
        self._calm_from = 0.0
        self._met: Counter[tuple[str, str]] = Counter()
        self._disagreements: list[str] = []
        self._probes: Probes | None = None

    def play(self) -> Outcome:
        """Carry the plan out."""
        clock, plan = self.stage.world.clock, self.stage.plan
        begins = at = clock.now() + plan.setup.begins
        longest = at
        for number, action in enumerate(plan.storm):
            at += action.wait
            longest = max(longest, at + min(action.seconds, LONGEST))
            self.stage.scheduler.at(at, partial(self._act, action, number))
        self.stage.scheduler.at(clock.now() + 1.0, self._publish)
        if plan.seed % 2:
            at = longest  # each fault ends in its time; else the storm's end cuts them short
        refused_until = at + 0.2
        self.stage.scheduler.at(at + 0.2, self._storm_over)
        stormed = at - begins
        look = random.Random(f"{plan.seed} look").uniform(clock.now() + plan.setup.begins, at)
        self.stage.scheduler.at(look, self._look)
        at += 0.2 + plan.setup.session + GRACE
        if plan.setup.dispatch is not None:
            at += LONGEST_ENDLESS_WAIT
        if plan.setup.gives_up == "dead-letter" and any(action.kind == "dead letters fail" for action in plan.storm):
            at += min(
                stormed + TRIED, TRIED_AT_LEAST
            )  # they are retried ever more rarely, up to as long as they failed
        if plan.setup.resets:
            at += RESET * sum(action.kind in ("reset", "at step") for action in plan.storm)
            self.stage.scheduler.at(at, self._check_gates)
        self.stage.scheduler.at(at, self._check_read)
        at += BALANCED
        if plan.setup.resets:
            at += ENDED_WITHOUT if plan.setup.others else ENDED
            self.stage.scheduler.at(at, self._check_resets)
        if refused := [action for action in plan.storm if action.kind in REFUSALS]:
            self.stage.scheduler.at(at - BALANCED, self._requests.begin)
            self.stage.scheduler.at(at, self._check_others)
            refused_until = at if any(map(self._lasts_long, refused)) else refused_until
            at = max(at, refused_until + min(refused_until - begins + TRIED, TRIED_AT_LEAST))
            self.stage.scheduler.at(at, self._check_read)
            at += BALANCED
        self.stage.scheduler.at(at, self._check_balance)
        if self.stage.mirrors is not None:
            at += SETTLED
            self.stage.scheduler.at(at, self.stage.mirrors.check)
        for probe in plan.probes:
            self.stage.scheduler.at(at + 0.01, partial(self._begin, probe))
            at += 0.01 + PROBE
            self.stage.scheduler.at(at, self._end)
        self.stage.scheduler.run(at + 0.1)
        failure = self.stage.scheduler.failure
        if failure is not None:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            self.stage.judge.violated(
                f"a part failed: {failure!r} at {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
            )
        for consumer in self.stage.world.consumers.values():
            consumer.tasks.close()
        for operator in self.stage.operators:
            operator.close()
        judge = self.stage.judge
        self._compare()
        return Outcome(
            plan,
            tuple(judge.violations),
            tuple(judge.trace),
            self.stage.scheduler.steps,
            judge.handed_out,
            judge.repeated,
            tuple(self._disagreements) if not judge.violations else (),
            self._met,
            failure,
        )

    def _look(self) -> None:
        """Ask the witnesses amid the faults."""
        self.stage.judge.say("-- a proof is made")
        self._compare(midst=True)

    def _compare(self, *, midst: bool = False) -> None:
        """Note what the witnesses disagree with."""
        if self.stage.judge.violations:
            return
        where = f"at {self.stage.world.clock.now():.3f}, " if midst else ""
        for judge in self.stage.judges():
            found = judge.witness.compare(judge.world, judge.owners().get, midst=midst)
            self._disagreements += [f"{where}{judge.of}{what}" for what in found]

    def _begin(self, probe: str) -> None:
        if self._probes is not None:
            self._probes.begin(probe)

    def _end(self) -> None:
        if self._probes is not None:
            self._probes.end()

    def _act(self, action: Action, number: int) -> None:
        self.stage.scheduler.reseed(f"{self.stage.plan.seed} {number} {action}")
        self.stage.scheduler.shuffled = number < self.stage.plan.shuffled
        self.stage.stop_the_fatal()
        if not self.stage.living():
            self.stage.join()
        self.stage.judge.say(
            f"-- {action.kind} (who {action.who}, where {action.where}, size {action.size}, {action.seconds} s)"
        )
        if not self.stage.partitions():
            return  # the only topic is deleted for now, and most actions are about a partition
        self._met.update((action.kind, state) for state in self.stage.states())
        end = begin(EVERY_KIND[action.kind](self.stage, action))
        if end is not None and self._lasts_long(action):
            self._long_ends.append(end)
        else:
            self.stage.lasts(end, action.seconds)

    def _lasts_long(self, action: Action) -> bool:
        """Return whether a fault ends only when all else is well."""
        # A reset waits for every partition of its topic.
        return action.kind in REFUSALS and action.seconds > LONG and not self.stage.plan.setup.resets

    def _publish(self) -> None:
        if self.stage.scheduler.calm:
            return
        if self.stage.partitions():
            tp = self._traffic.choice(self.stage.partitions())
            now = round(self.stage.world.clock.wall() * 1000)
            self.stage.kafka.publish(*tp, [b"x"] * self._traffic.randint(1, 4), timestamp=now)
        soon = self._traffic.random() * 2 * self.stage.plan.setup.traffic
        self.stage.scheduler.at(self.stage.world.clock.now() + soon, self._publish)

    def _storm_over(self) -> None:
        for end in self.stage.ends:
            end()
        self.stage.be_calm()
        self.stage.judge.calm()
        for group in self.stage.further.values():
            group.storm_over()
        self.stage.stop_the_fatal()
        seen: set[str] = set()
        for consumer in sorted(self.stage.living(), key=lambda c: not c.channel.membership.registered):
            if consumer.consumer_id in seen:
                self.stage.kill(consumer)
            seen.add(consumer.consumer_id)
        if not any(self.stage.kinds[c.name] == "dynamic" for c in self.stage.staying()):
            self.stage.join()  # a member that takes what the others leave
        self.stage.judge.say("-- the storm is over")
        self._calm_from = self.stage.world.clock.now()
        # Not at once: until then, a process that does not know yet what was done to it may deliver.
        self.stage.scheduler.at(self._calm_from + AWARE, self._publish_everywhere)
        for tp in self.stage.partitions():
            known = not self.stage.plan.setup.latest or self.stage.judge.commit_of(tp) is not None
            if known and tp.topic not in self.stage.recreated and tp not in self.stage.added:
                self._unread.append(tp)

    def _publish_everywhere(self) -> None:
        # Without another commit what is in a Kafka group comes of claims alone.
        quiet = self.stage.mirrors is not None and self.stage.plan.seed % 4 < 2
        for tp in self.stage.partitions():
            if not quiet or self.stage.is_behind(tp):
                self.stage.kafka.publish(*tp, [b"after the storm"])

    def _check_gates(self) -> None:
        if closed := self.stage.judge.resets.closed():
            waits = ", ".join(self.stage.judge.resets.unfinished()) or "no reset"
            self.stage.judge.violated(f"still closed: {', '.join(closed)}; unfinished: {waits}")

    def _check_resets(self) -> None:
        if unfinished := self.stage.judge.resets.unfinished():
            self.stage.judge.violated(f"resets that do not end: {', '.join(unfinished)}")

    def _check_read(self) -> None:
        if any(c.controller.fatal for c in self.stage.living()):
            return  # of two with one id, the one that came back too late: it continues after a restart
        unread = [
            str(tp)
            for tp in self._unread
            if (tp not in self.stage.judge.refused or self._all_right)
            and self.stage.judge.read_at(tp) < self._calm_from
            and self.stage.is_behind(tp)
        ]
        if unread:
            self.stage.judge.violated(
                f"not read {self.stage.plan.setup.session + GRACE} s after the last fault's end: {', '.join(unread)}"
            )

    def _check_others(self) -> None:
        """Judge that refused nodes stall no other partitions; end the refusals."""
        refused = set(map(str, self.stage.judge.refused))
        stalled = [tp for tp in self.stage.stalled() if tp not in refused]
        if stalled and not any(c.controller.fatal for c in self.stage.living()):
            self.stage.judge.violated(f"not committed, although nodes of others are refused: {', '.join(stalled)}")
        self._requests.check()
        for end in self._long_ends:
            end()
        self._all_right = True
        self.stage.judge.say("-- nothing is refused any more")

    def _check_balance(self) -> None:
        fatal = [c.name for c in self.stage.living() if c.controller.fatal is not None]
        if fatal:
            if not any(action.kind == "double" for action in self.stage.plan.storm):
                self.stage.judge.violated(f"{', '.join(fatal)} stopped for good: {self.stage.world.fatal(fatal[0])}")
            return  # without probes: the group is not at rest
        if stalled := self.stage.stalled():
            self.stage.judge.violated(f"read, but not committed to the end: {', '.join(stalled)}")
        if leaving := [c.name for c in self.stage.living() if c not in self.stage.staying()]:
            self.stage.judge.violated(f"leaves, and does not come to its end: {', '.join(leaving)}")
        self.stage.check_shares()
        self.stage.check_watches()
        self._check_channels()
        self._probes = Probes(self.stage)

    def _check_channels(self) -> None:
        for reloading in self.stage.reloading.values():
            if reloading.host in self.stage.staying() and (wrong := reloading.check()) is not None:
                self.stage.judge.violated(wrong)
        for group in self.stage.further.values():
            group.check()
        for database in self.stage.databases.values():
            database.check()


def play(
    plan: Plan,
    processor: Callable[[], BatchEventProcessor] | None = None,
    coordinator: Callable[[], ZkCoordinator] | None = None,
    witness: Callable[[FakeKafka], Witness] = Witness,
) -> Outcome:
    """Carry a plan out; `witness` makes an observer of each group."""
    return SimulatedRun(Stage(plan, processor, coordinator, witness)).play()
