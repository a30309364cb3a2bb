"""What each kind of action does to the world. One table; a fault that lasts ends by itself, or when the storm is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from inbound.coordinators.nodes import OPEN
from inbound.coordinators.zookeeper import Create, Delete, Op, SetData
from inbound.testing.simulation.plan import Action
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.run import Run

#: At most so many processes live at once.
MOST = 5

#: What ends a fault; None where it is over at once.
End = Callable[[], None] | None


def _gap(run: Run, action: Action) -> End:
    run.kafka.skip(*run.partition(action), action.size)
    return None


def _grow(run: Run, action: Action) -> End:
    topic = run.partition(action).topic
    count = run.kafka.topics()[topic].partitions
    if count < 8:
        run.kafka.create_topic(topic, count + 1)
        run.kafka.publish(topic, count, [b"x"] * action.size)
    return None


def _retain(run: Run, action: Action) -> End:
    tp = run.partition(action)
    offsets = run.kafka.offsets(*tp)
    if offsets:
        run.kafka.retain(*tp, offsets[action.size % len(offsets)])
    return None


def _leader_lost(run: Run, action: Action) -> End:
    tp = run.partition(action)
    run.kafka.lose_leader(*tp)

    def end() -> None:
        if tp in run.partitions():  # else its topic was deleted meanwhile
            run.kafka.elect_leader(*tp)

    return end


def _brokers_down(run: Run, action: Action) -> End:
    run.kafka.down()
    return run.kafka.up


def _join(run: Run, action: Action) -> End:
    if len(run.living()) < MOST:
        run.join()
    return None


def _leave(run: Run, action: Action) -> End:
    if len(run.staying()) > 1:
        run.leave(run.pick(run.staying(), action))
    return None


def _kill(run: Run, action: Action) -> End:
    run.kill(run.pick(run.living(), action))
    return None


def _restart(run: Run, action: Action) -> End:
    """The same consumer id again, right after a crash: on the same host (flag: provably dead), or on another."""
    victim = run.pick(run.living(), action)
    run.kill(victim)
    run.join(consumer_id=victim.consumer_id, heir_of=victim if action.flag else None)
    return None


def _double(run: Run, action: Action) -> End:
    """A second process with the id of one that lives."""
    if len(run.living()) >= MOST or not run.staying():
        return None
    second = run.join(consumer_id=run.pick(run.staying(), action).consumer_id)
    return lambda: run.kill(second)


def _freeze(run: Run, action: Action) -> End:
    victim = run.pick(run.living(), action)
    if victim.paused:
        return None
    run.world.pause(victim.name)
    return lambda: None if victim.dead else run.world.resume(victim.name)


def _slow_callback(run: Run, action: Action) -> End:
    """The next callback of one process takes that long."""
    run.slow[run.pick(run.living(), action).name] = action.seconds
    return None


def _disconnect(run: Run, action: Action) -> End:
    name = run.pick(run.living(), action).name
    run.ensemble.disconnect(name, executed=action.where % 3, late=action.flag)
    return (lambda: run.ensemble.forget_late(name)) if action.flag else None


def _lose_answers(run: Run, action: Action) -> End:
    name = run.pick(run.living(), action).name
    run.ensemble.lose_answers(name, action.size, after=action.where)
    return lambda: run.ensemble.answer_again(name)


def _drop_requests(run: Run, action: Action) -> End:
    name = run.pick(run.living(), action).name
    run.ensemble.drop_requests(name, action.size, after=action.where, late=action.flag)

    def end() -> None:
        run.ensemble.answer_again(name)
        run.ensemble.forget_late(name)

    return end


def _lag(run: Run, action: Action) -> End:
    name = run.pick(run.living(), action).name
    run.ensemble.lag(name)
    return lambda: run.ensemble.catch_up(name)


def _slow_network(run: Run, action: Action) -> End:
    """Requests, answers, watches, or the news that a connection is lost, take up to that long with one process."""
    kind = ("execute", "answer", "watch", "notice")[action.where % 4]
    key = (run.pick(run.living(), action).name, kind)
    run.scheduler.delays[key] = action.seconds

    def end() -> None:
        run.scheduler.delays.pop(key, None)
        run.scheduler.hurry(key)

    return end


def _cut_off(run: Run, action: Action) -> End:
    name = run.pick(run.living(), action).name
    run.ensemble.cut_off(name)
    return lambda: run.ensemble.heal(name)


def _outage(run: Run, action: Action) -> End:
    run.ensemble.down()
    return run.ensemble.up


def _expire(run: Run, action: Action) -> End:
    run.expire([run.pick(run.living(), action)])
    return None


def _expire_all(run: Run, action: Action) -> End:
    run.expire(run.living())
    return None


def _reposition(run: Run, action: Action) -> End:
    """Somebody sets the offset from outside and moves the epoch with it, in one transaction: a reset overtakes."""
    tp = run.partition(action)
    offsets = run.kafka.offsets(*tp)
    if run.judge.commit_of(tp) is None or not offsets:
        return None
    target = offsets[action.where % len(offsets)]
    ops: list[Op] = [
        SetData(run.paths.offset(*tp), b"%d" % target),
        SetData(run.paths.epoch(*tp), b""),
    ]
    run.judge.moved(tp)
    run.ensemble.tree.transaction(ops, session=0)
    return None


def _gate(run: Run, action: Action) -> End:
    """A gate is closed for a while: nothing is claimed or recovered meanwhile."""
    path = run.paths.gate(run.partition(action).topic)
    if run.ensemble.tree.get(path) is None:
        return None
    run.ensemble.tree.transaction([SetData(path, b"/inbound/commands/reset-offset/some")], session=0)

    def end() -> None:
        run.ensemble.tree.transaction([SetData(path, OPEN)], session=0)

    return end


def _recreate(run: Run, action: Action) -> End:
    """A topic is deleted and created anew: at once, or (flag) after a while."""
    topic = run.partition(action).topic
    count = run.kafka.topics()[topic].partitions
    if len(run.kafka.topics()) < len(run.plan.setup.topics):
        return None  # one at a time
    run.recreated.add(topic)
    for number in range(count):
        run.judge.recreated(TopicPartition(topic, number))
    run.kafka.delete_topic(topic)
    if action.flag:
        return lambda: run.kafka.create_topic(topic, count)
    run.kafka.create_topic(topic, count)
    return None


def _pause(run: Run, action: Action) -> End:
    """The group, or (flag) one member, is paused."""
    consumer = run.pick(run.living(), action).consumer_id
    path = run.paths.pause("operator", consumer if action.flag else None)
    if run.ensemble.tree.get(run.paths.pauses) is None or run.ensemble.tree.get(path) is not None:
        return None
    run.ensemble.tree.transaction([Create(path)], session=0)

    def end() -> None:
        run.ensemble.tree.transaction([Delete(path)], session=0)

    return end


def _owner_deleted(run: Run, action: Action) -> End:
    """Somebody deletes an owner node by hand."""
    tp = run.partition(action)
    path = run.paths.owner(*tp)
    if run.ensemble.tree.get(path) is not None:
        run.judge.disowned(tp)
        run.ensemble.tree.transaction([Delete(path)], session=0)
    return None


def _stranger(run: Run, action: Action) -> End:
    """Some other tool registers in the group, in its own words."""
    path = run.paths.member("stranger")
    if run.ensemble.tree.get(run.paths.ids) is None or run.ensemble.tree.get(path) is not None:
        return None
    run.ensemble.tree.transaction([Create(path, b'{"version": 1, "subscription": {"orders": 1}}')], session=0)
    return None


def _jump_wall_clock(run: Run, action: Action) -> End:
    run.world.clock.jump_wall((-1 if action.flag else 1) * 3600.0 * action.size)
    return None


KINDS: Mapping[str, Callable[[Run, Action], End]] = {
    "gap": _gap,
    "grow": _grow,
    "retain": _retain,
    "leader lost": _leader_lost,
    "brokers down": _brokers_down,
    "join": _join,
    "leave": _leave,
    "kill": _kill,
    "restart": _restart,
    "double": _double,
    "freeze": _freeze,
    "slow callback": _slow_callback,
    "disconnect": _disconnect,
    "lose answers": _lose_answers,
    "drop requests": _drop_requests,
    "lag": _lag,
    "slow network": _slow_network,
    "cut off": _cut_off,
    "outage": _outage,
    "expire": _expire,
    "expire all": _expire_all,
    "reposition": _reposition,
    "gate": _gate,
    "recreate": _recreate,
    "pause": _pause,
    "owner deleted": _owner_deleted,
    "stranger": _stranger,
    "jump wall clock": _jump_wall_clock,
}
