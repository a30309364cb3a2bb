"""Follows the configuration in checked steps, all or none."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from inbound.clock import Clock
from inbound.config import Config, Loaded
from inbound.errors import ConfigError, InboundError
from inbound.observe.status.status import APPLIED, REFUSED, ROLLED_BACK, UNCHANGED, ReloadOutcome, ReloadStatus
from inbound.plan.plan import PlannedChannel
from inbound.process.reload.changes import Changes, Do, ManifestRefusal, ProcessPlan, changes, keeping
from inbound.runtime.driver import Driver, Wakeup

log = logging.getLogger(__name__)

#: Seconds between looks at the files without and with a folder watch, until a second look confirms the first, and between
#: looks at leaving channels.
LOOK, LOOK_WATCHED, SETTLE, LOOK_AT_LEAVING = 0.5, 10.0, 0.25, 0.05
#: Seconds until a failed rollback is tried again.
TRY_AGAIN = 5.0
#: Seconds within which channels must work with new settings of ZooKeeper or Kafka; else the old ones come back.
PATIENCE = 20.0
#: Sections that are only known to be good when the channels work with them.
_ON_TRIAL = frozenset({"zookeeper", "kafka"})


class ConfigSource(Protocol):
    """Where the configuration comes from; see `inbound.cli.shared.files.ConfigFiles`."""

    def changed(self) -> Loaded | None:
        """Return the configuration if it has changed.

        Raises:
            ConfigError: it cannot be used; raised once.
        """

    def again(self) -> None:
        """Let `changed` return, or raise, its last answer once more."""

    @property
    def unsettled(self) -> bool:
        """Whether another look has to confirm the last one."""

    def folders(self) -> set[Path]:
        """Return the folders whose changes show a changed configuration."""


class FolderEvents(Protocol):
    """Reports changes in folders at once; see `inbound.cli.run.folder_watch.FolderWatch`."""

    watching: bool

    def follow(self, folders: set[Path]) -> None: ...

    def close(self) -> None: ...


class Channels:
    """The channels that are reconfigured: none here; see `inbound.process.channels.RunningChannels`."""

    def add(self, name: str, planned: PlannedChannel) -> None:
        """Make and start a channel. Raises InboundError: it does not start."""

    def edit(self, name: str, planned: PlannedChannel) -> None:
        """Apply other settings to a channel. Raises InboundError: it is unchanged."""

    def remove(self, name: str) -> None:
        """Let a channel leave its group; `finish` closes it then."""

    def finish(self) -> bool:
        """Close the channels that have left. Returns whether some are still leaving."""
        return False

    def staying(self) -> Mapping[str, PlannedChannel]:
        """Return the channels that run and are not leaving."""
        return {}

    def leaving(self) -> Mapping[str, PlannedChannel]:
        """Return the leaving channels: their names and groups are still taken."""
        return {}

    def troubles(self, sections: Collection[str]) -> list[str]:
        """Return why channels fail with the new settings of these sections."""
        return []


class Closable(Protocol):
    """A part of the process that is closed when it was replaced."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Section:
    """One section of the configuration, as a running process applies it.

    Used by the thread of changes.
    """

    def __init__(self, name: str, change: Callable[[Config, Config], object] = lambda old, new: None) -> None:
        """Take `change(old, new)`, which applies the section of `new`.

        Raises InboundError: `old` stays in effect.
        """
        self.name = name
        self._change = change

    def prepare(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Try the new settings, unused. Raises InboundError: they do not work."""

    def apply(self, old: ProcessPlan, new: ProcessPlan) -> None:
        """Apply the new settings. Raises InboundError: the old ones stay."""
        self._change(old.config, new.config)

    def lags(self, new: ProcessPlan) -> bool:
        """Return whether its part needs this step anyway.

        Its own section may not differ from the one that stands."""
        return False

    def tidy(self) -> None:
        """Close unused parts: replaced ones, and those of a failed change."""


class Replaceable(Section, Generic[C]):
    """A section that replaces a part; channels may still use the former."""

    def __init__(
        self,
        name: str,
        current: C,
        in_use: Callable[[object], bool],
        change: Callable[[Config, Config], object] = lambda old, new: None,
    ) -> None:
        """Take `current`, the part for new channels.

        `in_use` returns whether a channel still uses one; `change`: see `Section`.
        """
        super().__init__(name, change)
        self.current = current
        self.former: list[C] = []
        self._in_use = in_use

    def replace(self, new: C) -> None:
        """Use `new` for new channels."""
        self.former.append(self.current)
        self.current = new

    def tidy(self) -> None:
        for one in [one for one in self.former if not self._in_use(one)]:
            self.former.remove(one)
            one.close()


class Reconfiguration:
    """Brings a process to its current configuration: see `inbound.runtime.driver.Part`.

    An unusable configuration changes nothing: the old one goes on, and `problem` says why. One that can be read but
    does not start is rolled back whole, and not tried again before it has changed, or a reload is requested.
    """

    def __init__(
        self,
        source: ConfigSource | None,
        plan: Callable[[Loaded], ProcessPlan],
        begun: ProcessPlan,
        channels: Channels,
        clock: Clock,
        *,
        sections: Sequence[Section] = (),
        watch: Callable[[Callable[[], None]], FolderEvents] | None = None,
        wakeup: Wakeup | None = None,
    ) -> None:
        """Take `begun`, the plan at the start, and `plan`, which makes others.

        `plan` raises ConfigError where a configuration cannot be used. `sections` are prepared and applied in their
        order; a change of any other section is refused. `watch` makes a folder watch from a function to call at
        changes; `wakeup` wakes the thread that calls `run_once`.
        """
        self._source = source
        self._plan = plan
        self._channels = channels
        self._clock = clock
        self.sections = sections
        self._watch = watch(self.hurry) if watch is not None else None
        self._wakeup = wakeup or Wakeup()
        #: Its thread, where no other one calls `run_once`.
        self.driver = Driver("changes", self, self._wakeup, clock)
        #: Whether the process follows its configuration at all.
        self.follows = source is not None
        self._done = begun  # the last plan that was reached
        self._standing = begun  # as far as the steps have come; its channels are asked for
        self._wanted = begun
        self._undoing: str | None = None  # the reason of a rollback in progress
        self._look_at = 0.0
        self._todo_at = float("inf")  # when to take, or retry, the steps to `_wanted`
        self._under_way = False
        self._trial: set[str] = set()  # changed sections that are good once the channels work with them
        self._trial_until = float("inf")
        self._steps: list[str] = []
        self._problem: str | None = None
        self._stuck: dict[str, str] = {}  # what could not be rolled back yet, and why
        self._hurried = False
        self._settling = False
        self._asks = self._taken = 0
        self._answers = threading.Condition()
        self._answered: tuple[int, ReloadOutcome] = (0, ReloadOutcome(UNCHANGED))
        self._counts = {APPLIED: 0, REFUSED: 0, ROLLED_BACK: 0}
        self._last: tuple[str, float, list[str]] | None = None
        #: The manifests that cannot be used now. Replaced as a whole.
        self.refused: tuple[ManifestRefusal, ...] = ()
        self._tell_refused(begun)

    @property
    def config(self) -> Config:
        """The configuration in effect, section by section. Any thread."""
        return self._standing.config

    # -- any thread --------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """Why the current configuration does not run; None: it does. Any thread."""
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
            watching=self._watch is not None and self._watch.watching,
        )

    def hurry(self) -> None:
        """Look at the files soon: they have changed. Any thread."""
        self._hurried = True
        self._wakeup.set()

    def ask(self) -> int:
        """Read and try known files again, too. Returns a number for `answer`."""
        with self._answers:
            self._asks += 1
            number = self._asks
        self._wakeup.set()
        return number

    def reload(self, seconds: float) -> ReloadOutcome | None:
        """Look at the files now, and wait for the outcome; None: timeout."""
        return self.answer(self.ask(), seconds)

    def answer(self, number: int, seconds: float) -> ReloadOutcome | None:
        """Wait for the outcome of an `ask`; None: none within `seconds`."""
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
        self._tidy()
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
        if self._watch is not None:
            self._watch.close()

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
        if self._watch is not None:
            self._watch.follow(source.folders())
        watched = self._watch is not None and self._watch.watching
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
        self._reply(ReloadOutcome(REFUSED, [], problem, self._done.digest))

    def _tell_refused(self, new: ProcessPlan) -> None:
        """Log once that a manifest became unusable, and once that it recovered."""
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

    def _begin(self, new: ProcessPlan, now: float) -> None:
        found = changes(self._done, new)
        self._problem, self._undoing, self._steps = None, None, found.told()
        if not found and not self._under_way:
            self._done = self._standing = self._wanted = new
            self._reply(ReloadOutcome(UNCHANGED, [], _problems(new), new.digest))
            return
        log.info("the configuration has changed: %s", "; ".join(self._steps) or "back to the one before")
        self._wanted, self._under_way, self._todo_at = new, True, now
        self._stuck = {}

    # -- steps -------------------------------------------------------------------------------------------------------

    def _left(self) -> Changes:
        standing = self._standing
        now = ProcessPlan(standing.config, self._channels.staying(), standing.contents, standing.digest)
        found = changes(now, self._wanted)
        lagging = {section.name: () for section in self.sections if section.lags(self._wanted)}
        return Changes(found.steps, {**lagging, **found.sections})

    def _do(self, now: float) -> None:
        found = self._left()
        if not self._do_sections(found.sections, now):
            return
        if found.sections:
            found = self._left()
        for name, step in found.steps.items():
            if step.do in (Do.REMOVE, Do.REPLACE):  # a replaced one is added again when it has left
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

    def _do_sections(self, differing: Collection[str], now: float) -> bool:
        standing, wanted = self._standing, self._wanted
        sections = [section for section in self.sections if section.name in differing]
        try:
            for name in sorted(set(differing).difference(section.name for section in self.sections)):
                raise ConfigError(f"{name}: cannot change while the process runs; restart it")
            for section in sections:
                section.prepare(standing, wanted)
            for section in sections:
                section.apply(self._standing, wanted)
                self._stands(section.name)
        except InboundError as error:
            self._tidy()
            if not self._failed(str(error), now):
                self._stuck = {"sections": str(error)}
            return False
        self._standing = wanted
        trial = _ON_TRIAL.intersection(differing)
        if trial:
            self._trial |= trial
            self._trial_until = float("inf")
        return True

    def _tidy(self) -> None:
        for section in self.sections:
            section.tidy()

    def _stands(self, section: str) -> None:
        wanted, standing = self._wanted, self._standing
        config = standing.config.model_copy(update={section: getattr(wanted.config, section)})
        contents = {**standing.contents, section: wanted.contents.get(section, "")}
        self._standing = ProcessPlan(config, {}, contents, wanted.digest)

    def _take(self, name: str, do: Do) -> None:
        if do is Do.EDIT:
            self._channels.edit(name, self._wanted.channels[name])
        elif do is Do.ADD:
            planned = self._wanted.channels[name]
            leaving = self._channels.leaving()
            # The channel that had the name, or the group, has to leave first; then the steps are computed again.
            if name not in leaving and all(planned.config.group != other.config.group for other in leaving.values()):
                self._channels.add(name, planned)

    def _failed(self, problem: str, now: float) -> bool:
        """Begin the rollback. Returns False if it fails itself: it is retried."""
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
            outcome = ReloadOutcome(APPLIED, self._steps, _problems(self._done), self._done.digest)
        else:
            outcome = ReloadOutcome(ROLLED_BACK, self._steps, self._undoing, self._done.digest)
            self._undoing = None
        log.info("the configuration is %s: %s", outcome.outcome, "; ".join(outcome.steps) or "as it was")
        self._reply(outcome)

    def _reply(self, outcome: ReloadOutcome) -> None:
        if outcome.outcome != UNCHANGED:
            self._counts[outcome.outcome] += 1
            self._last = (outcome.outcome, self._clock.wall(), outcome.steps)
        with self._answers:
            self._answered = (self._taken, outcome)
            self._answers.notify_all()


def _problems(plan: ProcessPlan) -> str | None:
    return "\n".join(one.told for one in plan.refused) or None


def _unplaced(one: ManifestRefusal) -> tuple[str, str]:
    """Return an identity of a refusal without its line in the file."""
    return one.manifest.subject, re.sub(r":\d{1,9}", "", one.manifest.problem)
