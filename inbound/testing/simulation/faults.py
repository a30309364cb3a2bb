"""What each kind of action does to the world. One table; a fault that lasts ends by itself, or when the storm is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from inbound.coordinators.nodes import OPEN, EpochInfo, decode_epoch
from inbound.coordinators.zookeeper import Create, Delete, Op, SetData
from inbound.errors import BrokerUnavailableError
from inbound.testing.kafka import ClientError
from inbound.testing.simulation.node_faults import NODE_KINDS, End
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

#: At most so many processes live at once.
MOST = 5
#: How long a callback takes that hangs, in seconds.
FOREVER = 1e6


def _gap(stage: Stage, action: Action) -> End:
    stage.kafka.skip(*stage.partition(action), action.size)
    return None


def _grow(stage: Stage, action: Action) -> End:
    topic = stage.partition(action).topic
    count = stage.kafka.topics()[topic].partitions
    if count < 8:
        stage.kafka.create_topic(topic, count + 1)
        stage.added.add(TopicPartition(topic, count))
        stage.kafka.publish(topic, count, [b"x"] * action.size)
    return None


def _retain(stage: Stage, action: Action) -> End:
    """The log loses its beginning: also (flag) what nobody has read yet."""
    tp = stage.partition(action)
    if action.flag:
        stage.kafka.publish(*tp, [b"x"] * (action.size + 2))
        stage.kafka.retain(*tp, stage.kafka.offsets(*tp)[-2])
        return None
    offsets = stage.kafka.offsets(*tp)
    if offsets:
        stage.kafka.retain(*tp, offsets[action.size % len(offsets)])
    return None


def _cut(stage: Stage, action: Action) -> End:
    """A replica without the newest records becomes the leader; with the flag the log grows again, maybe over its old end.

    Then it may be that retention soon takes its place, with what was published there.
    """
    tp = stage.partition(action)
    offsets = stage.kafka.offsets(*tp)
    if offsets:
        end = offsets[-1 - action.where % min(8, len(offsets))]
        for judge in stage.judges():
            judge.cut(tp, end)
        stage.kafka.truncate(*tp, end)
        if action.flag:
            stage.kafka.publish(*tp, [b"new"] * (action.size * 3))
            if action.size > 2 and action.who % 2:
                stage.kafka.retain(*tp, end + action.size - 1)
    return None


def _leader_lost(stage: Stage, action: Action) -> End:
    tp = stage.partition(action)
    stage.kafka.lose_leader(*tp)

    def end() -> None:
        if tp in stage.partitions():  # else its topic was deleted meanwhile
            stage.kafka.elect_leader(*tp)

    return end


def _brokers_down(stage: Stage, action: Action) -> End:
    stage.kafka.down()
    return stage.kafka.up


def _client_fails(stage: Stage, action: Action) -> End:
    """The Kafka client of one process raises, at what changes which partitions it reads; also (flag) what nobody expects."""
    clients = stage.pick(stage.living(), action).log_clients
    if not clients:
        return None
    verb = ("read", "forget", "pause", "resume", "read")[action.where % 5]
    for _ in range(action.size):
        clients[-1].fail_next(verb, ClientError(verb) if action.flag else BrokerUnavailableError(f"{verb} failed"))
    return clients[-1].work_again


def _other_client(stage: Stage, action: Action) -> End:
    """The configuration of one process names another Kafka client; it writes the ids of topics in its own way."""
    consumer = stage.pick(stage.living(), action)
    assert consumer.connect is not None
    consumer.channel.reader.reconnect(consumer.connect)
    return None


def _join(stage: Stage, action: Action) -> End:
    if len(stage.living()) < MOST:
        stage.join()
    return None


def _leave(stage: Stage, action: Action) -> End:
    if len(stage.staying()) > 1:
        stage.leave(stage.pick(stage.staying(), action))
    return None


def _kill(stage: Stage, action: Action) -> End:
    stage.kill(stage.pick(stage.living(), action))
    return None


def _dies_writing(stage: Stage, action: Action) -> End:
    """A process dies when its next commit, or (flag) claim or recovery, is executed, and hears nothing of that."""
    victim = stage.pick(stage.living(), action)
    written = f"{stage.paths.root}/{'owners' if action.flag else 'offsets'}/"
    over: list[bool] = []

    def executed(commit: Commit) -> None:
        ours = stage.ensemble.clients_of.get(commit.session) == victim.name and not commit.expired
        if ours and not over and any(path.startswith(written) and commit.after.get(path) for _, path in commit.changed):
            over.append(True)
            stage.kill(victim)

    stage.ensemble.observers.append(executed)
    return lambda: over.append(True)


def _restart(stage: Stage, action: Action) -> End:
    """The same consumer id again, right after a crash: on the same host (flag: provably dead), or on another."""
    victim = stage.pick(stage.living(), action)
    stage.kill(victim)
    stage.join(consumer_id=victim.consumer_id, heir_of=victim if action.flag else None)
    return None


def _double(stage: Stage, action: Action) -> End:
    """A second process with the id of one that lives."""
    if len(stage.living()) >= MOST or not stage.staying():
        return None
    second = stage.join(consumer_id=stage.pick(stage.staying(), action).consumer_id)
    return lambda: stage.kill(second)


def _freeze(stage: Stage, action: Action) -> End:
    """SIGSTOP, and SIGCONT; with the flag the client is slow to notice what happened meanwhile."""
    victim = stage.pick(stage.living(), action)
    if victim.paused:
        return None
    stage.world.pause(victim.name)
    key = (victim.name, "notice")

    def noticed() -> None:
        stage.scheduler.delays.pop(key, None)

    def end() -> None:
        if victim.dead:
            return
        stage.world.resume(victim.name)
        if action.flag:
            stage.scheduler.delays[key] = 0.3
            stage.scheduler.at(stage.world.clock.now() + 0.3, noticed)

    return end


def _slow_callback(stage: Stage, action: Action) -> End:
    """The next callback of one process takes that long."""
    stage.slow[stage.pick(stage.living(), action).name] = action.seconds
    return None


def _hang(stage: Stage, action: Action) -> End:
    """The next callback of one process does not end before the storm does."""
    stage.slow[stage.pick(stage.living(), action).name] = FOREVER
    return None


def _disconnect(stage: Stage, action: Action) -> End:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.disconnect(name, executed=action.where % 3, late=action.flag)
    return None


def _lose_answers(stage: Stage, action: Action) -> End:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.lose_answers(name, action.size, after=action.where)
    return lambda: stage.ensemble.answer_again(name)


def _drop_requests(stage: Stage, action: Action) -> End:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.drop_requests(name, action.size, after=action.where, late=action.flag)
    return lambda: stage.ensemble.answer_again(name)


def _stuck_write(stage: Stage, action: Action) -> End:
    """The next commit or release of one process, or (flag) its next claim or recovery, gets stuck, and may come late."""
    name = stage.pick(stage.living(), action).name
    paths = stage.group(action).paths
    stage.ensemble.stick(name, "transaction at " + (paths.gate("") if action.flag else paths.epochs("")))
    return lambda: stage.ensemble.answer_again(name)


def _lag(stage: Stage, action: Action) -> End:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.lag(name)
    return lambda: stage.ensemble.catch_up(name)


def _slow_network(stage: Stage, action: Action) -> End:
    """Requests, answers, watches, or the news that a connection is lost, take up to that long with one process."""
    kind = ("execute", "answer", "watch", "notice")[action.where % 4]
    key = (stage.pick(stage.living(), action).name, kind)
    stage.scheduler.delays[key] = action.seconds

    def end() -> None:
        stage.scheduler.delays.pop(key, None)
        stage.scheduler.hurry(key)

    return end


def _cut_off(stage: Stage, action: Action) -> End:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.cut_off(name)
    return lambda: stage.ensemble.heal(name)


def _outage(stage: Stage, action: Action) -> End:
    stage.ensemble.down()
    return stage.ensemble.up


def _expire(stage: Stage, action: Action) -> End:
    stage.expire([stage.pick(stage.living(), action)])
    return None


def _expire_all(stage: Stage, action: Action) -> End:
    stage.expire(stage.living())
    return None


def _reposition(stage: Stage, action: Action) -> End:
    """Somebody sets the offset from outside and moves the epoch with it, in one transaction: a reset overtakes."""
    tp, group = stage.partition(action), stage.group(action)
    offsets = stage.kafka.offsets(*tp)
    if group.judge.commit_of(tp) is None or not offsets or stage.ensemble.tree.get(group.paths.offset(*tp)) is None:
        return None
    target, path = offsets[action.where % len(offsets)], group.paths.epoch(*tp)
    node = stage.ensemble.tree.get(path)
    info = decode_epoch(path, node.data if node is not None else b"") or EpochInfo("", 0, "")
    nonce = f"outside-{stage.ensemble.tree.zxid}"
    moved = replace(info, consumer="somebody", session=0, nonce=nonce, leader_epoch=None)
    if stage.kafka.names(tp.topic, info.topic_id):  # with another client than the group has
        moved = replace(moved, topic_id=stage.kafka.id_of(tp.topic, action.who))
    ops: list[Op] = [SetData(group.paths.offset(*tp), b"%d" % target), SetData(path, moved.encode())]
    group.judge.moved(tp)
    stage.ensemble.tree.transaction(ops, session=0)
    return None


def _gate(stage: Stage, action: Action) -> End:
    """A gate is closed for a while: nothing is claimed or recovered meanwhile."""
    path = stage.group(action).paths.gate(stage.partition(action).topic)
    if stage.ensemble.tree.get(path) is None:
        return None
    stage.ensemble.tree.transaction([SetData(path, b"/inbound/commands/reset-offset/some")], session=0)

    def end() -> None:
        stage.ensemble.tree.transaction([SetData(path, OPEN)], session=0)

    return end


def _recreate(stage: Stage, action: Action) -> End:
    """A topic is deleted and created anew: at once, or (flag) after a while."""
    topic = stage.partition(action).topic
    count = stage.kafka.topics()[topic].partitions
    if len(stage.kafka.topics()) < len(stage.plan.setup.topics):
        return None  # one at a time
    stage.recreated.add(topic)
    for number in range(count):
        for judge in stage.judges():
            judge.recreated(TopicPartition(topic, number))
    stage.kafka.delete_topic(topic)
    if action.flag:
        return lambda: stage.kafka.create_topic(topic, count)
    stage.kafka.create_topic(topic, count)
    return None


def _pause(stage: Stage, action: Action) -> End:
    """The group, or (flag) one member, is paused."""
    consumer, paths = stage.pick(stage.living(), action).consumer_id, stage.group(action).paths
    path = paths.pause("operator", consumer if action.flag else None)
    if stage.ensemble.tree.get(paths.pauses) is None or stage.ensemble.tree.get(path) is not None:
        return None
    stage.ensemble.tree.transaction([Create(path)], session=0)

    def end() -> None:
        stage.ensemble.tree.transaction([Delete(path)], session=0)

    return end


def _owner_deleted(stage: Stage, action: Action) -> End:
    """Somebody deletes an owner node by hand."""
    tp, group = stage.partition(action), stage.group(action)
    path = group.paths.owner(*tp)
    if stage.ensemble.tree.get(path) is not None:
        group.judge.disowned(tp)
        stage.ensemble.tree.transaction([Delete(path)], session=0)
    return None


def _stranger(stage: Stage, action: Action) -> End:
    """Some other tool registers in the group, in its own words."""
    path = stage.paths.member("stranger")
    if stage.ensemble.tree.get(stage.paths.ids) is None or stage.ensemble.tree.get(path) is not None:
        return None
    stage.ensemble.tree.transaction([Create(path, b'{"version": 1, "subscription": {"orders": 1}}')], session=0)
    return None


def _ledger_fails(stage: Stage, action: Action) -> End:
    """The ledger of one process takes nothing, as a full disk."""
    ledger = stage.pick(stage.living(), action).ledger
    ledger.fail()
    return ledger.work_again


def _dead_letters_fail(stage: Stage, action: Action) -> End:
    """Nobody can send anything to the dead-letter topic."""
    stage.dead_letters_fail = True

    def end() -> None:
        stage.dead_letters_fail = False

    return end


def _jump_wall_clock(stage: Stage, action: Action) -> End:
    stage.world.clock.jump_wall((-1 if action.flag else 1) * 3600.0 * action.size)
    return None


KINDS: Mapping[str, Callable[[Stage, Action], End]] = {
    "gap": _gap,
    "grow": _grow,
    "retain": _retain,
    "cut": _cut,
    "leader lost": _leader_lost,
    "brokers down": _brokers_down,
    "client fails": _client_fails,
    "other client": _other_client,
    "join": _join,
    "leave": _leave,
    "kill": _kill,
    "dies writing": _dies_writing,
    "restart": _restart,
    "double": _double,
    "freeze": _freeze,
    "slow callback": _slow_callback,
    "hang": _hang,
    "disconnect": _disconnect,
    "lose answers": _lose_answers,
    "drop requests": _drop_requests,
    "stuck write": _stuck_write,
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
    "ledger fails": _ledger_fails,
    "dead letters fail": _dead_letters_fail,
    **NODE_KINDS,
}
