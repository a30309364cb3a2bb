"""The scheduler for coroutines: who runs when, what a time-out does, how several are awaited, how all end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import ZkAmbiguousError
from inbound.testing.clock import ManualClock


class Scene:
    """Tasks on a manual clock; counts how often it was woken."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.woken = 0
        self.tasks = Tasks(self.clock, self._wake)
        self.log: list[str] = []

    def _wake(self) -> None:
        self.woken += 1

    def call(self, timeout: float | None = None) -> Call[str]:
        return Call("a request", None if timeout is None else self.clock.now() + timeout)

    async def wait_for(self, call: Call[str], name: str = "task") -> str:
        self.log.append(f"{name} asks")
        answer = await call
        self.log.append(f"{name} got {answer}")
        return answer


@pytest.fixture
def scene() -> Scene:
    """Nothing running yet."""
    return Scene()


# -- one task ----------------------------------------------------------------------------------------------------------


def test_a_task_runs_in_step_and_only_there(scene: Scene) -> None:
    """Neither `spawn` nor the thread that completes a call runs it (kazoo has one of its own); both only wake."""
    call = scene.call()
    finished = scene.tasks.spawn(scene.wait_for(call), "task")
    assert (scene.log, scene.woken) == ([], 1)
    scene.tasks.step()
    assert scene.log == ["task asks"]
    thread = threading.Thread(target=lambda: call.succeed("yes"))
    thread.start()
    thread.join()
    assert (scene.log, scene.woken) == (["task asks"], 2)
    scene.tasks.step()
    assert (scene.log, finished.result()) == (["task asks", "task got yes"], "yes")
    assert not scene.tasks.busy


def test_an_answer_that_is_there_already_is_not_waited_for(scene: Scene) -> None:
    """One step is enough, however many of them."""
    call = scene.call()
    call.succeed("yes")
    finished = scene.tasks.spawn(scene.wait_for(call), "task")
    scene.tasks.step()
    assert finished.result() == "yes"


def test_an_error_is_raised_where_it_is_awaited_and_ends_the_task_if_not_caught(scene: Scene) -> None:
    """The task's own `finished` has it; others go on."""
    call, other = scene.call(), scene.call()
    failing = scene.tasks.spawn(scene.wait_for(call, "failing"), "failing")
    going = scene.tasks.spawn(scene.wait_for(other, "going"), "going")
    scene.tasks.step()
    call.fail(ValueError("no"))
    scene.tasks.step()
    with pytest.raises(ValueError, match="no"):
        failing.result()
    assert (going.done, scene.tasks.busy) == (False, True)


def test_tasks_run_in_the_order_in_which_they_became_ready(scene: Scene) -> None:
    """Answers decide, not the order of spawning."""
    calls = [scene.call() for _ in range(3)]
    for n, call in enumerate(calls):
        scene.tasks.spawn(scene.wait_for(call, f"{n}"), f"{n}")
    scene.tasks.step()
    scene.log.clear()
    for n in (2, 0, 1):
        calls[n].succeed("it")
    scene.tasks.step()
    assert scene.log == ["2 got it", "0 got it", "1 got it"]


def test_a_task_may_spawn_another_and_await_it(scene: Scene) -> None:
    """`finished` is a call like any other."""

    async def outer() -> str:
        return "outer " + await scene.tasks.spawn(scene.wait_for(call), "inner")

    call = scene.call()
    finished = scene.tasks.spawn(outer(), "outer")
    scene.tasks.step()
    call.succeed("yes")
    scene.tasks.step()
    assert finished.result() == "outer yes"


# -- time --------------------------------------------------------------------------------------------------------------


def test_sleep_ends_when_its_time_has_come(scene: Scene) -> None:
    """`step` says when that is."""
    finished = scene.tasks.spawn(scene.tasks.sleep(5), "sleep")
    assert scene.tasks.step() == scene.clock.now() + 5
    scene.clock.advance(4.9)
    scene.tasks.step()
    assert not finished.done
    scene.clock.advance(0.2)
    assert scene.tasks.step() is None
    assert finished.done


def test_past_its_deadline_a_call_is_ambiguous_and_a_later_answer_changes_nothing(scene: Scene) -> None:
    """The request may have executed: the awaiting task must look."""
    call = scene.call(timeout=2)
    finished = scene.tasks.spawn(scene.wait_for(call), "task")
    assert scene.tasks.step() == scene.clock.now() + 2
    scene.clock.advance(2)
    scene.tasks.step()
    call.succeed("too late")
    scene.tasks.step()
    with pytest.raises(ZkAmbiguousError, match=r"a request.*no answer in time"):
        finished.result()
    assert scene.log == ["task asks"]


def test_an_answer_in_time_leaves_no_deadline_behind(scene: Scene) -> None:
    """No task is woken for it any more."""
    call = scene.call(timeout=2)
    scene.tasks.spawn(scene.wait_for(call), "task")
    scene.tasks.step()
    call.succeed("yes")
    assert scene.tasks.step() is None


# -- several -----------------------------------------------------------------------------------------------------------


def gathering(scene: Scene, calls: list[Call[str]], limit: int = 64) -> Call[list[str]]:
    """Spawn a task that gathers the answers of all `calls`."""
    waiting = (scene.wait_for(call, f"{n}") for n, call in enumerate(calls))
    return scene.tasks.spawn(scene.tasks.gather(waiting, "part", limit), "all")


def test_gather_returns_results_in_the_order_asked_for(scene: Scene) -> None:
    """In any order of the answers."""
    calls = [scene.call() for _ in range(3)]
    finished = gathering(scene, calls)
    scene.tasks.step()
    for n in (1, 2, 0):
        calls[n].succeed(f"{n}")
        scene.tasks.step()
    nothing = gathering(scene, [])
    scene.tasks.step()
    assert (finished.result(), nothing.result()) == (["0", "1", "2"], [])


def test_gather_keeps_to_its_limit(scene: Scene) -> None:
    """The next one begins when one of the first has ended."""
    calls = [scene.call() for _ in range(5)]
    finished = gathering(scene, calls, limit=2)
    for n, call in enumerate(calls):
        scene.tasks.step()
        assert len([line for line in scene.log if line.endswith("asks")]) <= n + 2
        call.succeed("yes")
    scene.tasks.step()
    assert finished.result() == ["yes"] * 5


def test_gather_raises_the_first_error_once_all_have_ended(scene: Scene) -> None:
    """None goes on unseen behind the back of who handles the error."""
    calls = [scene.call() for _ in range(3)]
    finished = gathering(scene, calls)
    scene.tasks.step()
    calls[1].fail(ValueError("one"))
    calls[0].succeed("yes")
    scene.tasks.step()
    assert not finished.done
    calls[2].fail(ValueError("two"))
    scene.tasks.step()
    with pytest.raises(ValueError, match="one"):
        finished.result()


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1])
def test_close_ends_every_task_where_it_stands(scene: Scene, steps: int) -> None:
    """Clean-up runs, nothing else does, and its waiters get an error."""

    async def careful(call: Call[str]) -> str:
        try:
            return await scene.wait_for(call)
        finally:
            scene.log.append("cleaned up")

    call = scene.call()
    finished = scene.tasks.spawn(careful(call), "careful")
    for _ in range(steps):
        scene.tasks.step()
    scene.tasks.close()
    call.succeed("too late")
    scene.tasks.step()
    assert scene.log == ["task asks", "cleaned up"][: 2 * steps]
    with pytest.raises(ZkAmbiguousError, match="stopping"):
        finished.result()
    assert not scene.tasks.busy


def test_close_in_the_middle_of_a_gather_leaves_nothing_that_was_never_awaited(scene: Scene) -> None:
    """Python warns about coroutines that were made and never run."""
    made = [scene.wait_for(scene.call(), f"{n}") for n in range(4)]
    finished = scene.tasks.spawn(scene.tasks.gather(made, "part", 1), "all")
    scene.tasks.step()
    scene.tasks.close()
    assert finished.done
    del made


# -- Call --------------------------------------------------------------------------------------------------------------


def test_a_call_is_answered_once() -> None:
    """The first answer counts, and `when_done` is called once, also when it asks afterwards."""
    call: Call[int] = Call("a request")
    told: list[str] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: told.append(name)

    call.when_done(note("before"))
    with pytest.raises(RuntimeError, match="a request"):
        call.result()
    call.succeed(1)
    call.succeed(2)
    call.fail(ValueError("late"))
    call.when_done(note("after"))
    assert (call.result(), told) == (1, ["before", "after"])
