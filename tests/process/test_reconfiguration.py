"""What comes of a change of the configuration: applied, refused, or taken back; told in status, and to who asks for it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from inbound.config import ChannelConfig, Config, ControllerConfig, Loaded, LoggingConfig, ZooKeeperConfig
from inbound.config.document import Places
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.errors import ConfigError, InboundError
from inbound.observe.status.status import ReloadOutcome
from inbound.plan.plan import PlannedChannel
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import (
    LOOK_WATCHED,
    PATIENCE,
    SETTLE,
    TRY_AGAIN,
    Channels,
    Reconfiguration,
    Section,
)
from inbound.testing.clock import ManualClock
from inbound.testing.world import Recording


def plan(session: float = 10.0, **workers: int) -> ProcessPlan:
    """Return a plan of channels by name, with so many workers each."""
    config = Config(zookeeper=ZooKeeperConfig(session_timeout=session), channels={"x": _channel("x", 1)})
    base = {"zookeeper": config.zookeeper}
    channels = {
        name: PlannedChannel(_channel(name, count), Recording, "", {}, DynamicCoordinator(), base=base)
        for name, count in workers.items()
    }
    return ProcessPlan(config, channels, digest=f"{session} {workers}")


def _channel(name: str, workers: int) -> ChannelConfig:
    return ChannelConfig.model_validate(
        {"topics": ["t"], "group": name, "workers": workers, "processor": {"type": "simple"}}
    )


class Noting(Section):
    """A section of which nothing is real: the stage notes what is done with it."""

    def __init__(self, name: str, stage: Stage) -> None:
        super().__init__(name)
        self._stage = stage

    def prepare(self, old: ProcessPlan, new: ProcessPlan) -> None:
        self._stage.do(f"try {self.name}")

    def apply(self, old: ProcessPlan, new: ProcessPlan) -> None:
        self._stage.do(f"apply {self.name}", f"{new.config.zookeeper.session_timeout:g}")


@dataclass
class Stage(Channels):
    """A process of which only the reconfiguration is real: the rest notes its orders, and fails where it is to."""

    begun: ProcessPlan
    clock: ManualClock = field(default_factory=ManualClock)
    done: list[str] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    fails_then: dict[str, str] = field(default_factory=dict)  # what fails from then on
    unwell: list[str] = field(default_factory=list)
    lingers: bool = False
    unsettled: bool = False
    watching: bool = True

    def __post_init__(self) -> None:
        self._news: list[ProcessPlan | ConfigError] = []
        self._last: ProcessPlan | ConfigError = self.begun
        self._plan = self.begun
        self._running = dict(self.begun.channels)
        self._leaving: dict[str, PlannedChannel] = {}
        sections = [Noting(name, self) for name in ("zookeeper", "controller")]
        self.it = Reconfiguration(
            self, lambda _: self._plan, self.begun, self, self.clock, sections=sections, watch=lambda hurry: self
        )
        self.run(1)
        self.done.clear()

    def say(self, news: ProcessPlan | ConfigError) -> None:
        """Let the files hold something else, and the system tell of it."""
        self._news.append(news)
        self.it.hurry()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.it.run_once()
            self.clock.advance(0.05)

    def outcome(self) -> tuple[str | None, str | None]:
        """Return what came of the last change, and what is wrong now."""
        status = self.it.status()
        return status.last_outcome, status.problem

    # -- the source, the watch --------------------------------------------------------------------------------------

    def changed(self) -> Loaded | None:
        """Say what is new."""
        if not self._news:
            return None
        self._last = news = self._news.pop(0)
        if isinstance(news, ConfigError):
            raise news
        self._plan = news
        return Loaded(news.config, {}, Places("f"))

    def again(self) -> None:
        """Say it once more."""
        self._news.append(self._last)

    def folders(self) -> set[Path]:
        """It is in none."""
        return set()

    def follow(self, folders: set[Path]) -> None:
        """Nothing to follow."""

    def close(self) -> None:
        """Nothing to close."""

    # -- the channels, the sections -----------------------------------------------------------------------------------

    def do(self, what: str, *more: str) -> None:
        if what in self.fails:
            self.fails |= {self.fails_then.get(what, what)}
            raise InboundError(f"{what}: no")
        self.done.append(" ".join([what, *more]))

    def add(self, name: str, planned: PlannedChannel) -> None:
        self.do(f"add {name}")
        self._running[name] = planned

    def edit(self, name: str, planned: PlannedChannel) -> None:
        self.do(f"edit {name}", f"to {planned.config.workers}")
        self._running[name] = planned

    def remove(self, name: str) -> None:
        self.do(f"remove {name}")
        self._leaving[name] = self._running.pop(name)

    def finish(self) -> bool:
        if not self.lingers:
            self._leaving.clear()
        return bool(self._leaving)

    def staying(self) -> Mapping[str, PlannedChannel]:
        return self._running

    def leaving(self) -> Mapping[str, PlannedChannel]:
        return self._leaving

    def troubles(self, sections: Collection[str]) -> list[str]:
        return self.unwell


@pytest.fixture
def stage() -> Stage:
    return Stage(plan(a=1, b=1))


def test_what_differs_is_done_and_told(stage: Stage) -> None:
    """Channel by channel; the digest is that of what runs."""
    stage.say(plan(a=2, b=1, c=1))
    stage.run(1)
    status = stage.it.status()
    assert stage.done == ["edit a to 2", "add c"]
    assert (status.applied_total, status.last_outcome, status.last_steps) == (
        1, "applied", ["channel a: edited (workers)", "channel c: added"],
    )  # fmt: skip
    assert status.digest == plan(a=2, b=1, c=1).digest


def test_one_that_cannot_be_used_changes_nothing(stage: Stage) -> None:
    """And is over when it is good again, though nothing is to be done for that."""
    stage.say(ConfigError("f:1: no good"))
    stage.run(1)
    assert (stage.outcome(), stage.done) == (("refused", "f:1: no good"), [])
    stage.say(plan(a=1, b=1))
    stage.run(1)
    assert (stage.it.status().problem, stage.it.status().refused_total, stage.done) == (None, 1, [])


def test_one_step_that_fails_takes_all_of_them_back(stage: Stage) -> None:
    """Also those that have been taken; it is not tried again until it changes."""
    stage.fails = {"add c"}
    stage.say(plan(a=2, b=1, c=1))
    stage.run(60)
    assert stage.done == ["edit a to 2", "edit a to 1"]
    assert stage.outcome() == ("rolled-back", "channel c cannot be added: add c: no")


def test_a_section_that_nothing_can_change_is_named_and_the_edit_is_taken_back(stage: Stage) -> None:
    """Taken for in effect, it would be shown as what it is not."""
    edited = plan(a=2, b=1)
    other = edited.config.model_copy(update={"logging": LoggingConfig(level="debug")})

    stage.say(replace(edited, config=other))
    stage.run(1)

    problem = "logging: cannot change while the process runs; restart it"
    assert (stage.outcome(), stage.done) == (("rolled-back", problem), [])


def test_what_is_tried_before_anything_is_given_up(stage: Stage) -> None:
    """Another ZooKeeper that does not answer costs no channel its partitions."""
    stage.fails = {"try zookeeper"}
    stage.say(plan(session=20.0, a=1, b=1))
    stage.run(1)
    assert (stage.done, stage.outcome()) == ([], ("rolled-back", "try zookeeper: no"))


def test_what_does_not_work_in_time_is_taken_back(stage: Stage) -> None:
    """It could be connected to, but no channel becomes a member of its group."""
    stage.unwell = ["channel a: not a member"]
    stage.say(plan(session=20.0, a=1, b=1))
    stage.run(1)
    there = ["try zookeeper", "apply zookeeper 20", "remove a", "remove b", "add a", "add b"]
    assert (stage.done, stage.it.status().under_way) == (there, True)
    stage.run(PATIENCE)
    assert stage.done[len(there) :] == [step.replace("20", "10") for step in there]
    assert stage.outcome() == ("rolled-back", f"it does not work after {PATIENCE:.0f} s: channel a: not a member")


def test_what_is_to_come_back_and_cannot_is_tried_until_it_does(stage: Stage) -> None:
    """There is nothing else to go back to; status says why."""
    stage.fails, stage.fails_then = {"add c"}, {"add c": "edit a"}
    stage.say(plan(a=2, b=1, c=1))
    stage.run(1)
    assert stage.it.status().under_way
    assert stage.outcome() == (None, "channel c cannot be added: add c: no\nedit a: no")
    stage.fails.clear()
    stage.run(TRY_AGAIN)
    assert (stage.done, stage.outcome()[0]) == (["edit a to 2", "edit a to 1"], "rolled-back")


def test_a_channel_that_is_replaced_comes_when_the_one_before_has_gone(stage: Stage) -> None:
    """However long that takes; another one that needs the name or the group waits as well."""
    stage.lingers = True
    stage.say(plan(session=20.0, a=1, b=1))
    stage.run(30)
    assert stage.done[-2:] == ["remove a", "remove b"]
    stage.lingers = False
    stage.run(1)
    assert (stage.done[-2:], stage.outcome()) == (["add a", "add b"], ("applied", None))


def test_a_newer_one_takes_over_from_one_under_way(stage: Stage) -> None:
    """What has been done of that is the way to the newer one."""
    stage.lingers = True
    stage.say(plan(b=1))
    stage.run(1)
    stage.say(plan(a=3, b=1))
    stage.run(1)
    stage.lingers = False
    stage.run(1)
    assert (stage.done, stage.outcome()) == (["remove a", "add a"], ("applied", None))


def asked(stage: Stage) -> ReloadOutcome | None:
    """Ask for a reload, and return what is answered."""
    number = stage.it.ask()
    stage.run(1)
    return stage.it.answer(number, 0.0)


def test_a_reload_returns_its_outcome(stage: Stage) -> None:
    """Nothing, a refusal, or steps; what has failed is tried once more."""
    assert asked(stage) == ReloadOutcome("unchanged", [], None, stage.begun.digest)
    stage.say(ConfigError("f:1: no good"))
    stage.run(1)
    assert asked(stage) == ReloadOutcome("refused", [], "f:1: no good", stage.begun.digest)
    stage.fails = {"add c"}
    stage.say(plan(a=1, b=1, c=1))
    stage.run(1)
    stage.fails = set()
    answer = asked(stage)
    assert answer == ReloadOutcome("applied", ["channel c: added"], None, plan(a=1, b=1, c=1).digest)


def test_who_asks_waits_for_the_end_of_the_steps(stage: Stage) -> None:
    """Not only for their beginning."""
    stage.lingers = True
    stage.say(plan(b=1))
    number = stage.it.ask()
    stage.run(1)
    assert stage.it.answer(number, 0.0) is None
    answers: list[ReloadOutcome | None] = []
    waiting = threading.Thread(target=lambda: answers.append(stage.it.answer(number, 60.0)))
    waiting.start()
    stage.lingers = False
    stage.run(1)
    waiting.join()
    assert [one.outcome for one in answers if one] == ["applied"]


def test_a_look_that_has_to_be_confirmed_is_not_hurried(stage: Stage) -> None:
    """Else a file that is being written would be taken for whole: notifications come one after the other then."""
    looks: list[float] = []
    stage.changed = lambda: looks.append(stage.clock.now())  # type: ignore[method-assign]
    stage.unsettled = True
    stage.it.hurry()
    stage.it.run_once()
    stage.it.hurry()
    stage.it.run_once()
    assert len(looks) == 1
    stage.run(SETTLE + 0.1)
    assert looks[1] - looks[0] >= SETTLE


def test_where_the_system_tells_the_files_are_looked_at_now_and_then_only(stage: Stage) -> None:
    """As a backstop."""
    looks: list[float] = []
    stage.changed = lambda: looks.append(stage.clock.now())  # type: ignore[method-assign]
    stage.run(3 * LOOK_WATCHED)
    assert len(looks) in (2, 3, 4)


def test_the_same_controller_is_the_same(stage: Stage) -> None:
    """Defaults that are written out are no change."""
    same = plan(a=1, b=1)
    stage.say(
        ProcessPlan(same.config.model_copy(update={"controller": ControllerConfig()}), same.channels, digest="other")
    )
    stage.run(1)
    assert (stage.done, stage.it.status().digest, stage.it.status().applied_total) == ([], "other", 0)
