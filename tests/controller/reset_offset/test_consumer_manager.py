"""ConsumerManager: the owner of a lock stops and starts the group; other requests wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from inbound.controller.reset_offset.consumer_manager import ConsumerManager, GroupLockedError, Life
from inbound.coordinators.zookeeper import Call
from inbound.errors import ResetError
from inbound.testing import ManualClock

GROUP, TOKEN, OTHER = "orders-svc", "/inbound/commands/reset-offset/one", "/inbound/commands/reset-offset/two"


class Consumers:
    """A group that notes its orders, and completes them when the test says so."""

    def __init__(self, *, slow: bool = False) -> None:
        self.told: list[str] = []
        self.open: list[Call[None]] = []
        self.slow = slow

    def stop(self) -> Call[None]:
        return self._begin("stop")

    def start(self) -> Call[None]:
        return self._begin("start")

    def finish(self, error: Exception | None = None) -> None:
        """Let the oldest of what was begun come to its end."""
        call = self.open.pop(0)
        if error is None:
            call.succeed(None)
        else:
            call.fail(error)

    def _begin(self, what: str) -> Call[None]:
        self.told.append(what)
        call: Call[None] = Call(what)
        self.open.append(call)
        if not self.slow:
            self.finish()
        return call


class Scene:
    """A manager of one group on a manual clock."""

    def __init__(self, *, slow: bool = False) -> None:
        self.clock = ManualClock()
        self.consumers = Consumers(slow=slow)
        self.manager = ConsumerManager(self.clock.now, lock_seconds=60.0)
        self.manager.add(GROUP, self.consumers)
        self.done: list[str] = []

    def ask(self, what: str) -> bool:
        return self.manager.request(GROUP, what, lambda: self.done.append(what))

    @property
    def life(self) -> Life:
        return self.manager.status(GROUP).life


def test_a_group_is_stopped_and_started_once_however_often_that_is_asked_for() -> None:
    """Several leaders of one reset do it at once, each again and again."""
    scene = Scene()
    for _ in range(3):
        assert scene.manager.stop(GROUP, TOKEN).done
    for _ in range(3):
        assert scene.manager.start(GROUP, TOKEN).done
    assert (scene.consumers.told, scene.life, scene.manager.status(GROUP).token) == (
        ["stop", "start"], Life.RUNNING, None,
    )  # fmt: skip


def test_while_it_is_under_way_everybody_gets_the_same_answer() -> None:
    """It comes when the batches in hand are through."""
    scene = Scene(slow=True)
    first, second = scene.manager.stop(GROUP, TOKEN), scene.manager.stop(GROUP, TOKEN)
    before = first.done, second.done, scene.life
    scene.consumers.finish()
    assert (before, first.done, second.done, scene.life) == (
        (False, False, Life.STOPPING), True, True, Life.STOPPED,
    )  # fmt: skip


def test_what_could_not_be_done_is_tried_when_it_is_asked_for_again() -> None:
    """The error is the answer to the one that asked; the group stays locked. Also one that is raised at once."""
    scene = Scene(slow=True)
    failed = scene.manager.stop(GROUP, TOKEN)
    scene.consumers.finish(OSError("no answer"))
    with pytest.raises(OSError, match="no answer"):
        failed.result()
    again = scene.manager.stop(GROUP, TOKEN)
    scene.consumers.finish()
    assert (again.done, scene.consumers.told, scene.life) == (True, ["stop", "stop"], Life.STOPPED)

    class Broken(Consumers):
        def stop(self) -> Call[None]:
            raise OSError("gone")

    scene = Scene()
    scene.manager.add(GROUP, Broken())
    with pytest.raises(OSError, match="gone"):
        scene.manager.stop(GROUP, TOKEN).result()
    assert scene.manager.status(GROUP).token == TOKEN


def test_what_others_ask_for_waits_until_the_group_is_unlocked_and_is_carried_out_in_its_order() -> None:
    """Of several reloads only the last one: it is the configuration as it is then."""
    scene = Scene(slow=True)
    at_once = scene.ask("resume")
    scene.manager.stop(GROUP, TOKEN)
    waits = [scene.ask("reload"), scene.ask("rebalance"), scene.ask("reload")]
    scene.consumers.finish()
    scene.manager.start(GROUP, TOKEN)
    during = list(scene.done)
    scene.consumers.finish()
    assert (at_once, waits, during, scene.done) == (
        True, [False] * 3, ["resume"], ["resume", "rebalance", "reload"],
    )  # fmt: skip


def test_what_is_asked_for_while_that_is_carried_out_goes_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    """Else an older wish would win over a newer one. One that fails is logged, and holds up no other."""
    scene = Scene()
    scene.manager.lock(GROUP, TOKEN)

    def reload() -> None:
        scene.ask("edit")
        scene.done.append("reload")

    def fail() -> None:
        raise OSError("disk full")

    scene.manager.request(GROUP, "reload", reload)
    scene.manager.request(GROUP, "rebalance", fail)
    scene.ask("resume")
    assert scene.manager.unlock(GROUP, TOKEN) == ("reload", "rebalance", "resume", "edit")
    assert scene.done == ["reload", "resume", "edit"]
    said = "group orders-svc: rebalance, which had waited for a reset, failed: disk full; ask for it again"
    assert said in caplog.text


@pytest.mark.parametrize(
    "ask", [ConsumerManager.stop, ConsumerManager.start, ConsumerManager.lock], ids=["stop", "start", "lock"]
)
def test_another_reset_of_the_group_is_refused_while_it_is_locked(ask: Callable[..., object]) -> None:
    """What one has stopped is not for the other to start; the message says who has it, and for how long."""
    scene = Scene()
    scene.manager.stop(GROUP, TOKEN, owner="host-1")
    scene.clock.advance(20)
    with pytest.raises(GroupLockedError, match=r"orders-svc: locked by host-1 \(.*/one\); wait .* in 40 s"):
        ask(scene.manager, GROUP, OTHER)
    scene.manager.unlock(GROUP, OTHER)
    assert (scene.life, scene.manager.status(GROUP).token) == (Life.STOPPED, TOKEN)


def test_groups_go_side_by_side() -> None:
    """A lock is of one group."""
    scene, others = Scene(), Consumers()
    scene.manager.add("bills-svc", others)
    scene.manager.stop(GROUP, TOKEN)
    scene.manager.stop("bills-svc", OTHER)
    scene.manager.start("bills-svc", OTHER)
    assert [(s.group, s.life) for s in scene.manager.statuses()] == [
        ("bills-svc", Life.RUNNING), (GROUP, Life.STOPPED),
    ]  # fmt: skip


def test_a_lock_expires_when_its_owner_asks_no_more_and_the_group_goes_on() -> None:
    """It is started again, and what has waited is carried out. The token is the reset's: the next leader goes on."""
    scene = Scene()
    for _ in range(5):  # as a living leader does all the time
        scene.manager.stop(GROUP, TOKEN)
        scene.clock.advance(50)
    scene.ask("resume")
    scene.clock.advance(9)
    early = scene.manager.expire()
    scene.clock.advance(1)
    assert (early, scene.manager.expire(), scene.life, scene.done) == ([], [GROUP], Life.RUNNING, ["resume"])
    scene.manager.stop(GROUP, TOKEN)
    scene.clock.advance(100)
    scene.manager.stop(GROUP, TOKEN)  # the expired lock ends first
    scene.manager.start(GROUP, TOKEN)
    assert scene.consumers.told == ["stop", "start"] * 3


def test_a_stop_that_comes_while_it_starts_wins() -> None:
    """The next reset does not wait until the group runs; the first one's answer does not unlock what is the second's."""
    scene = Scene(slow=True)
    scene.manager.stop(GROUP, TOKEN)
    scene.consumers.finish()
    scene.manager.start(GROUP, TOKEN)
    scene.manager.unlock(GROUP, TOKEN)
    stopping = scene.manager.stop(GROUP, OTHER)
    scene.consumers.finish()  # the start
    during = stopping.done, scene.manager.status(GROUP).token
    scene.consumers.finish()
    assert (during, stopping.done, scene.life) == ((False, OTHER), True, Life.STOPPED)


def test_the_status_says_who_has_locked_it_and_what_waits() -> None:
    """In one line."""
    scene = Scene()
    scene.manager.stop(GROUP, TOKEN, owner="host-1")
    scene.ask("resume")
    scene.ask("reload")
    assert scene.manager.status(GROUP).told() == (
        f"group orders-svc: stopped, locked by host-1 ({TOKEN}) for another 60 s at most; waiting for its end: resume, reload"
    )
    scene.manager.start(GROUP, TOKEN)
    assert scene.manager.status(GROUP).told() == "group orders-svc: running"


def test_a_group_that_is_not_run_here_is_refused_by_name() -> None:
    """With those that are."""
    with pytest.raises(ResetError, match="group other: this process does not run it; it runs orders-svc"):
        Scene().manager.stop("other", TOKEN)


def test_requests_of_many_threads_are_carried_out_once_each() -> None:
    """Whether they come before, while, or after the group is unlocked."""
    scene = Scene()
    scene.manager.lock(GROUP, TOKEN)
    names = [f"edit {number}" for number in range(40)]
    threads = [threading.Thread(target=scene.ask, args=(name,)) for name in names]
    for thread in threads[:20]:
        thread.start()
    unlocking = threading.Thread(target=scene.manager.unlock, args=(GROUP, TOKEN))
    unlocking.start()
    for thread in threads[20:]:
        thread.start()
    for thread in (*threads, unlocking):
        thread.join(10)
    assert (sorted(scene.done), scene.manager.status(GROUP).waiting) == (sorted(names), ())
