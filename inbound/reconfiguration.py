"""Follows the configuration while the process runs: whole and checked, step by step, and back if it does not start."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from inbound.changes import Changes, Do, Plan, Refusal, changes, keeping
from inbound.clock import Clock
from inbound.config import Loaded
from inbound.errors import ConfigError, InboundError
from inbound.planning import PlannedChannel
from inbound.status import ReloadStatus

log = logging.getLogger(__name__)

#: How often the files are looked at where the system does not tell that something has happened, and where it does; how
#: soon a look is confirmed by another one; and how often who is leaving is looked at. Seconds.
LOOK, LOOK_WATCHED, SETTLE, LOOK_AT_LEAVING = 0.5, 10.0, 0.25, 0.05
#: What is to come back and cannot is tried again after so many seconds.
TRY_AGAIN = 5.0
#: How long what stands on new settings of ZooKeeper or Kafka may take to work, in seconds, before the old ones come back.
PATIENCE = 20.0
#: Sections that are only known to be good when what stands on them works.
_ON_TRIAL = frozenset({"zookeeper", "kafka"})

APPLIED, UNCHANGED, REFUSED, ROLLED_BACK = "applied", "unchanged", "refused", "rolled-back"


class Source(Protocol):
    """Where the configuration comes from; see `inbound.cli.files.ConfigFiles`."""

    def changed(self) -> Loaded | None:
        """Return the configuration if it is another one than before. Raises ConfigError, once: it cannot be used."""

    def again(self) -> None:
        """Let `changed` return, or raise, once more what it did."""

    @property
    def unsettled(self) -> bool:
        """Whether another look has to confirm the last one."""

    def folders(self) -> set[Path]:
        """Return the folders in which something happens when it changes."""


class Watch(Protocol):
    """Tells of changes; see `inbound.cli.watching.FolderWatch`."""

    watching: bool

    def follow(self, folders: set[Path]) -> None: ...

    def close(self) -> None: ...


class Channels(Protocol):
    """What is reconfigured; see `inbound.running.RunningChannels`."""

    def add(self, name: str, planned: PlannedChannel) -> None: ...

    def edit(self, name: str, planned: PlannedChannel) -> None: ...

    def remove(self, name: str) -> None: ...

    def finish(self) -> bool: ...

    def staying(self) -> Mapping[str, PlannedChannel]: ...

    def leaving(self) -> Mapping[str, PlannedChannel]: ...

    def troubles(self, sections: Collection[str]) -> list[str]: ...


class Process(Protocol):
    """What the channels stand on; see `inbound.sections.Sections`. One thread."""

    def prepare(self, sections: Mapping[str, tuple[str, ...]], wanted: Plan) -> None:
        """Try whatever can be tried before anything is given up. Raises InboundError: it does not work."""

    def apply(self, section: str, wanted: Plan) -> None:
        """Let `section` be as wanted. Raises InboundError: it cannot, and is as before."""

    def tidy(self) -> None:
        """Close what nothing stands on any more."""


class NoSections:
    """Stands in where nothing but channels changes."""

    def prepare(self, sections: Mapping[str, tuple[str, ...]], wanted: Plan) -> None:
        """Nothing to try."""

    def apply(self, section: str, wanted: Plan) -> None:
        """Nothing to do."""

    def tidy(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True)
class Outcome:
    """What came of a change of the configuration."""

    outcome: str  # applied, unchanged, refused, rolled-back
    steps: list[str] = field(default_factory=list)
    problem: str | None = None
    digest: str = ""  # of what runs now


class Reconfiguration:
    """Does on its own thread, step by step, what leads to the configuration as it is now: see `inbound.driver.Part`.

    What cannot be used changes nothing: the old goes on, and `problem` says why. What can be read but does not start is
    taken back whole, and not tried again before it has changed, or somebody asks for it.
    """

    def __init__(
        self,
        source: Source | None,
        plan: Callable[[Loaded], Plan],
        begun: Plan,
        channels: Channels,
        clock: Clock,
        *,
        process: Process | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`begun` is what runs at the start; `plan` raises ConfigError where a configuration cannot be used.

        `wake` has `run_once` called soon.
        """
        self._source = source
        self._plan = plan
        self._channels = channels
        self._clock = clock
        self._process = process or NoSections()
        #: Hurries the looks; set before the first one, if at all.
        self.watch: Watch | None = None
        self._wake = wake
        self._done = begun  # what was reached last
        self._standing = begun  # as it is on the way; its channels are asked for
        self._wanted = begun
        self._undoing: str | None = None  # why we are on the way back
        self._look_at = 0.0
        self._todo_at = float("inf")  # when to do, or try again, what leads to what is wanted
        self._under_way = False
        self._trial: set[str] = set()  # sections that have changed, and are good when what stands on them works
        self._trial_until = float("inf")
        self._steps: list[str] = []
        self._problem: str | None = None
        self._stuck: dict[str, str] = {}  # what could not be brought back yet
        self._hurried = False
        self._settling = False
        self._asks = self._taken = 0
        self._answers = threading.Condition()
        self._answered: tuple[int, Outcome] = (0, Outcome(UNCHANGED))
        self._counts = {APPLIED: 0, REFUSED: 0, ROLLED_BACK: 0, UNCHANGED: 0}
        self._last: tuple[str, float, list[str]] | None = None
        #: What of the manifests cannot be used now. Replaced as a whole.
        self.refused: tuple[Refusal, ...] = ()
        self._tell_refused(begun)

    # -- any thread --------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """Why the configuration as it is now is not what runs; None: it is. Any thread."""
        return "\n".join(filter(None, [self._problem, *dict(self._stuck).values()])) or None

    def status(self) -> ReloadStatus:
        """Return a snapshot. Any thread."""
        last = self._last
        return ReloadStatus(
            digest=self._done.digest,
            applied_total=self._counts[APPLIED],
            refused_total=self._counts[REFUSED],
            rolled_back_total=self._counts[ROLLED_BACK],
            last_outcome=last[0] if last else None,
            last_at=last[1] if last else None,
            last_steps=list(last[2]) if last else [],
            problem=self.problem,
            under_way=self._under_way,
            watching=self.watch is not None and self.watch.watching,
        )

    def hurry(self) -> None:
        """Something has happened to the files: look soon. Any thread."""
        self._hurried = True
        self._wake()

    def ask(self) -> int:
        """Have the files looked at, and what they hold tried again even if it is known. Returns a number for `answer`."""
        with self._answers:
            self._asks += 1
            number = self._asks
        self._wake()
        return number

    def answer(self, number: int, seconds: float) -> Outcome | None:
        """Wait for what came of an `ask`; None: it is not known after so many seconds."""
        with self._answers:
            self._answers.wait_for(lambda: self._answered[0] >= number, seconds)
            answered, outcome = self._answered
        return outcome if answered >= number else None

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        now = self._clock.now()
        asked = self._asks
        if asked > self._taken and self._source is not None:
            self._taken = asked
            self._source.again()
            self._hurried = True
        if self._hurried:
            self._hurried = False
            if not self._settling:  # else the look that confirms the last one comes anyway, and not too soon after it
                self._look_at = now
        if now >= self._look_at:
            self._look(now)
        before = len(self._channels.leaving())
        more = self._channels.finish()
        self._process.tidy()
        if len(self._channels.leaving()) < before and self._under_way:
            self._todo_at = min(self._todo_at, now)  # a name is free
        if now >= self._todo_at:
            self._todo_at = float("inf")
            self._do(now)
            more = True
        if self._under_way:
            self._conclude_if_there(now)
        return min(self._look_at, self._todo_at, now + LOOK_AT_LEAVING if more or self._under_way else float("inf"))

    def close(self) -> None:
        """End the watch on the folders. After the part's thread has ended."""
        if self.watch is not None:
            self.watch.close()

    def _look(self, now: float) -> None:
        source = self._source
        if source is None:
            self._look_at = float("inf")
            return
        try:
            loaded = source.changed()
            new = self._plan(loaded) if loaded is not None else None
        except ConfigError as error:
            self._refuse(str(error))
            new = None
        if self.watch is not None:
            self.watch.follow(source.folders())
        watched = self.watch is not None and self.watch.watching
        self._settling = source.unsettled
        self._look_at = now + (SETTLE if self._settling else LOOK_WATCHED if watched else LOOK)
        if new is not None:
            new = keeping(self._wanted, new)
            self._tell_refused(new)
            self._begin(new, now)

    def _refuse(self, problem: str) -> None:
        if problem != self._problem:
            log.error("the configuration has changed and cannot be used, so nothing of it is: %s", problem)
        self._problem = problem
        self._count(REFUSED, [])
        self._reply(Outcome(REFUSED, [], problem, self._done.digest))

    def _tell_refused(self, new: Plan) -> None:
        """Say once what of the manifests cannot be used, and when it can."""
        before = {_unplaced(one): one for one in self.refused}
        now = {_unplaced(one): one for one in new.refused}
        for key, one in now.items():
            if key not in before:
                log.error("%s; everything else goes on", one.told)
        subjects = {one.manifest.subject for one in new.refused}
        for subject in dict.fromkeys(one.manifest.subject for one in before.values()):
            if subject not in subjects:
                log.info("%s: no longer refused", subject)
        self.refused = new.refused

    def _begin(self, new: Plan, now: float) -> None:
        found = changes(self._done, new)
        self._problem, self._undoing, self._steps = None, None, found.told()
        if not found and not self._under_way:
            self._done = self._standing = self._wanted = new
            self._reply(Outcome(UNCHANGED, [], _problems(new), new.digest))
            return
        log.info("the configuration has changed: %s", "; ".join(self._steps) or "back to what it was")
        self._wanted, self._under_way, self._todo_at = new, True, now
        self._stuck = {}

    # -- steps -------------------------------------------------------------------------------------------------------

    def _left(self) -> Changes:
        standing = self._standing
        now = Plan(standing.config, self._channels.staying(), standing.contents, standing.digest)
        return changes(now, self._wanted)

    def _do(self, now: float) -> None:
        found = self._left()
        if not self._do_sections(found.sections, now):
            return
        if found.sections:
            found = self._left()
        for name, step in found.steps.items():
            if step.do in (Do.REMOVE, Do.REPLACE):  # which is added again when it has gone
                self._channels.remove(name)
        stuck = {}
        for name, step in found.steps.items():
            try:
                self._take(name, step.do)
            except InboundError as error:
                if self._failed(f"channel {name} cannot be {step.do.value}: {error}", now):
                    return
                stuck[name] = str(error)
        self._stuck = stuck

    def _do_sections(self, sections: Mapping[str, tuple[str, ...]], now: float) -> bool:
        try:
            if sections:
                self._process.prepare(sections, self._wanted)
            for section in sections:
                self._process.apply(section, self._wanted)
                self._stands(section)
        except InboundError as error:
            if not self._failed(str(error), now):
                self._stuck = {"sections": str(error)}
            return False
        trial = _ON_TRIAL.intersection(sections)
        if trial:
            self._trial |= trial
            self._trial_until = float("inf")
        return True

    def _stands(self, section: str) -> None:
        wanted, standing = self._wanted, self._standing
        config = standing.config.model_copy(update={section: getattr(wanted.config, section)})
        contents = {**standing.contents, section: wanted.contents.get(section, "")}
        self._standing = Plan(config, {}, contents, wanted.digest)

    def _take(self, name: str, do: Do) -> None:
        if do is Do.EDIT:
            self._channels.edit(name, self._wanted.channels[name])
        elif do is Do.ADD:
            planned = self._wanted.channels[name]
            leaving = self._channels.leaving()
            # What had the name, or the group, has to be gone first; then all is looked at again.
            if name not in leaving and all(planned.config.group != other.config.group for other in leaving.values()):
                self._channels.add(name, planned)

    def _failed(self, problem: str, now: float) -> bool:
        """Turn back. Returns False if we are on the way back already: then it is tried again later."""
        if self._undoing is not None:
            log.error("%s; it is to come back, and is tried again in %.0f s", problem, TRY_AGAIN)
            self._todo_at = now + TRY_AGAIN
            return False
        log.error("the new configuration does not start, so what ran before comes back: %s", problem)
        self._undoing = self._problem = problem
        self._wanted, self._todo_at = self._done, now
        self._trial_until = float("inf")
        return True

    def _conclude_if_there(self, now: float) -> None:
        if self._todo_at <= now or self._channels.leaving() or self._left():
            return
        if self._trial and self._undoing is None:
            troubles = self._channels.troubles(self._trial)
            if troubles:
                if self._trial_until == float("inf"):
                    self._trial_until = now + PATIENCE
                if now >= self._trial_until:
                    self._failed(f"it does not work after {PATIENCE:.0f} s: {'; '.join(troubles)}", now)
                return
        self._trial, self._trial_until, self._under_way = set(), float("inf"), False
        self._stuck = {}
        if self._undoing is None:
            self._done = self._standing = self._wanted
            outcome = Outcome(APPLIED, self._steps, _problems(self._done), self._done.digest)
        else:
            outcome = Outcome(ROLLED_BACK, self._steps, self._undoing, self._done.digest)
            self._undoing = None
        log.info("the configuration is %s: %s", outcome.outcome, "; ".join(outcome.steps) or "as it was")
        self._count(outcome.outcome, outcome.steps)
        self._reply(outcome)

    def _count(self, outcome: str, steps: list[str]) -> None:
        self._counts[outcome] += 1
        self._last = (outcome, self._clock.wall(), steps)

    def _reply(self, outcome: Outcome) -> None:
        with self._answers:
            self._answered = (self._taken, outcome)
            self._answers.notify_all()


def _problems(plan: Plan) -> str | None:
    """Return what of a plan's manifests cannot be used, for whoever asked for a reload."""
    return "\n".join(one.told for one in plan.refused) or None


def _unplaced(one: Refusal) -> tuple[str, str]:
    """Return what tells refusals apart: another line above a problem does not make it another one."""
    return one.manifest.subject, re.sub(r":\d{1,9}", "", one.manifest.problem)
