"""The table of faults: what each kind of action does.

A fault runs to its `yield`; the rest of it ends the fault. A fault without a `yield` is over at once. The others end after
their time, or with the storm. `reset_faults.py` has the faults of reloads and resets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from inbound.coordinators.nodes import OPEN, EpochInfo, decode_epoch
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.zookeeper import Create, Delete, Op, SetData
from inbound.errors import BrokerUnavailableError
from inbound.testing.kafka import ClientError
from inbound.testing.simulation.operators import ResetOperator
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage
from inbound.testing.simulation.subscribers import REPLIES, SUBSCRIBER, Trouble
from inbound.testing.world import Consumer
from inbound.testing.zookeeper import ANONYMOUS, Who
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

#: The most processes that live at once.
MOST = 5
#: How long a hanging callback takes, in seconds.
FOREVER = 1e6
#: The owners of refused nodes, which others may not use, or may only read.
ADMIN, READABLE = Who("admin", "creator"), Who("admin", "readable")
#: The size of actions in which the partition's owner dies, too.
WITH_ITS_OWNER = 6
#: Node content that is no offset.
RUBBISH = b"rubbish"

Going: TypeAlias = Iterator[None] | None
Fault: TypeAlias = Callable[[Stage, Action], Going]


def begin(fault: Going) -> Callable[[], None] | None:
    """Begin a fault; return a call that ends it, or None."""
    return partial(next, fault, None) if fault is not None and next(fault, False) is None else None


# -- logs and brokers --------------------------------------------------------------------------------------------------


def _gap(stage: Stage, action: Action) -> None:
    stage.kafka.skip(*stage.partition(action), action.size)


def _grow(stage: Stage, action: Action) -> None:
    topic = stage.partition(action).topic
    count = stage.kafka.topics()[topic].partitions
    if count < 8:
        stage.kafka.create_topic(topic, count + 1)
        stage.added.add(TopicPartition(topic, count))
        stage.kafka.publish(topic, count, [b"x"] * action.size)


def _retain(stage: Stage, action: Action) -> None:
    """Retention deletes the log's beginning; with the flag also unread records."""
    tp = stage.partition(action)
    if action.flag:
        stage.kafka.publish(*tp, [b"x"] * (action.size + 2))
        stage.kafka.retain(*tp, stage.kafka.offsets(*tp)[-2])
    elif offsets := stage.kafka.offsets(*tp):
        stage.kafka.retain(*tp, offsets[action.size % len(offsets)])


def _cut(stage: Stage, action: Action) -> None:
    """An unclean leader election cuts the log; with the flag it regrows.

    It may grow over its old end. Then retention may soon delete the place of the cut, with the records published there.
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


def _recreate(stage: Stage, action: Action) -> Iterator[None]:
    """A topic is deleted and recreated, with the flag after a while."""
    topic = stage.partition(action).topic
    count = stage.kafka.topics()[topic].partitions
    if len(stage.kafka.topics()) < len(stage.plan.setup.topics):
        return  # one at a time
    stage.recreated.add(topic)
    for number in range(count):
        for judge in stage.judges():
            judge.recreated(TopicPartition(topic, number))
    stage.kafka.delete_topic(topic)
    if action.flag:
        yield
    stage.kafka.create_topic(topic, count)


def _leader_lost(stage: Stage, action: Action) -> Iterator[None]:
    tp = stage.partition(action)
    stage.kafka.lose_leader(*tp)
    yield
    if tp in stage.partitions():  # else its topic was deleted since
        stage.kafka.elect_leader(*tp)


def _brokers_down(stage: Stage, action: Action) -> Iterator[None]:
    stage.kafka.down()
    yield
    stage.kafka.up()


def _client_fails(stage: Stage, action: Action) -> Iterator[None]:
    """A process's Kafka client raises when its set of partitions changes."""
    clients = stage.pick(stage.living(), action).log_clients
    if not clients:
        return
    client, verb = clients[-1], ("read", "forget", "pause", "resume", "read")[action.where % 5]
    for _ in range(action.size):
        client.fail_next(verb, ClientError(verb) if action.flag else BrokerUnavailableError(f"{verb} failed"))
    yield
    client.work_again()


def _other_client(stage: Stage, action: Action) -> None:
    """A process switches to a Kafka client that writes topic ids differently."""
    consumer = stage.pick(stage.living(), action)
    assert consumer.connect is not None
    consumer.channel.reader.reconnect(consumer.connect)


# -- processes ---------------------------------------------------------------------------------------------------------


def _join(stage: Stage, action: Action, count: int = 1) -> None:
    for _ in range(count):
        if len(stage.living()) < MOST:
            stage.join()


def _leave(stage: Stage, action: Action) -> None:
    if len(stage.staying()) > 1:
        stage.leave(stage.pick(stage.staying(), action))


def _dies_writing(stage: Stage, action: Action) -> Iterator[None]:
    """A process dies as its commit (flag: claim) executes, before the answer."""
    victim = stage.pick(stage.living(), action)
    written = f"{stage.paths.root}/{'owners' if action.flag else 'offsets'}/"
    over: list[bool] = []

    def executed(commit: Commit) -> None:
        ours = stage.ensemble.clients_of.get(commit.session) == victim.name and not commit.expired
        if ours and not over and any(path.startswith(written) and commit.after.get(path) for _, path in commit.changed):
            over.append(True)
            stage.kill(victim)

    stage.ensemble.observers.append(executed)
    yield
    over.append(True)


def _restart(stage: Stage, action: Action) -> None:
    """A crashed process restarts with its id (flag: it is provably dead)."""
    victim = stage.pick(stage.living(), action)
    stage.kill(victim)
    stage.join(consumer_id=victim.consumer_id, heir_of=victim if action.flag else None)


def _double(stage: Stage, action: Action) -> Iterator[None]:
    """A second process takes the id of a live one."""
    if len(stage.living()) >= MOST or not stage.staying():
        return
    second = stage.join(consumer_id=stage.pick(stage.staying(), action).consumer_id)
    yield
    stage.kill(second)


def _slow_callback(stage: Stage, action: Action) -> None:
    stage.slow[stage.pick(stage.living(), action).name] = action.seconds


def _hang(stage: Stage, action: Action) -> None:
    """The next callback of one process hangs until the storm ends."""
    stage.slow[stage.pick(stage.living(), action).name] = FOREVER


def _ledger_fails(stage: Stage, action: Action) -> Iterator[None]:
    ledger = stage.pick(stage.living(), action).ledger
    ledger.fail()
    yield
    ledger.work_again()


def _dead_letters_fail(stage: Stage, action: Action) -> Iterator[None]:
    stage.dead_letters_fail = True
    yield
    stage.dead_letters_fail = False


def _jump_wall_clock(stage: Stage, action: Action) -> None:
    stage.world.clock.jump_wall((-1 if action.flag else 1) * 3600.0 * action.size)


def _to_one(what: str, stage: Stage, action: Action) -> Going:
    return to_process(what, stage, action, stage.pick(stage.living(), action))


def to_process(
    what: str, stage: Stage, action: Action, victim: Consumer | ResetOperator, *, leads: bool = False
) -> Iterator[None]:
    """One fault of `TO_ONE` happens to a process.

    `leads`: it is the leader of a reset, and the fault meets its requests for that.
    """
    name, ensemble, delays = victim.name, stage.ensemble, stage.scheduler.delays
    after = 0 if leads else action.where
    match what:
        case "kill":
            if not victim.dead:
                victim.dead = True
                ensemble.freeze(name)
        case "freeze" if not victim.paused:  # SIGSTOP, and SIGCONT
            victim.paused = True
            ensemble.freeze(name)
            yield
            if not victim.dead:
                victim.paused = False
                ensemble.thaw(name)
                if action.flag and not leads:  # the client is slow to notice what happened to its connection
                    delays[name, "notice"] = 0.3
                    stage.scheduler.at_next(0.3, partial(delays.pop, (name, "notice"), None))
        case "cut off":
            ensemble.cut_off(name)
            yield
            ensemble.heal(name)
        case "expire":
            stage.expire([victim])
        case "disconnect":
            ensemble.disconnect(name, executed=action.where % 3, late=action.flag)
        case "lose answers":
            ensemble.lose_answers(name, action.size, after=after)
            yield
            ensemble.answer_again(name)
        case "drop requests":
            ensemble.drop_requests(name, action.size, after=after, late=action.flag)
            yield
            ensemble.answer_again(name)
        case "stuck write":  # its next commit or release, or (flag) claim or recovery; it may come late
            paths = stage.group(action).paths
            write = CommandPaths.RESETS if leads else paths.gate("") if action.flag else paths.epochs("")
            ensemble.stick(name, f"transaction at {write}")
            yield
            ensemble.answer_again(name)
        case "slow network":  # requests, answers, watches, or the news of a lost connection take up to that long
            key = name, ("execute", "answer", "watch", "notice")[action.where % (3 if leads else 4)]
            delays[key] = action.seconds
            yield
            delays.pop(key, None)
            stage.scheduler.hurry(key)


#: Faults of one process.
TO_ONE = (
    "kill", "freeze", "cut off", "expire", "disconnect", "lose answers", "drop requests", "stuck write", "slow network",
)  # fmt: skip


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def _lag(stage: Stage, action: Action) -> Iterator[None]:
    name = stage.pick(stage.living(), action).name
    stage.ensemble.lag(name)
    yield
    stage.ensemble.catch_up(name)


def _outage(stage: Stage, action: Action) -> Iterator[None]:
    stage.ensemble.down()
    yield
    stage.ensemble.up()


def _expire_all(stage: Stage, action: Action) -> None:
    stage.expire(stage.living())


def _reposition(stage: Stage, action: Action) -> None:
    """A tool sets the offset and moves the epoch in one transaction."""
    tp, group = stage.partition(action), stage.group(action)
    offsets = stage.kafka.offsets(*tp)
    if group.judge.commit_of(tp) is None or not offsets or stage.ensemble.tree.get(group.paths.offset(*tp)) is None:
        return
    target, path = offsets[action.where % len(offsets)], group.paths.epoch(*tp)
    node = stage.ensemble.tree.get(path)
    info = decode_epoch(path, node.data if node is not None else b"") or EpochInfo("", 0, "")
    nonce = f"outside-{stage.ensemble.tree.zxid}"
    moved = replace(info, consumer="tool", session=0, nonce=nonce, leader_epoch=None)
    if stage.kafka.names(tp.topic, info.topic_id):  # with another client than the group has
        moved = replace(moved, topic_id=stage.kafka.id_of(tp.topic, action.who))
    group.judge.moved(tp)
    stage.write_by_hand(SetData(group.paths.offset(*tp), b"%d" % target), SetData(path, moved.encode()))


def _gate(stage: Stage, action: Action) -> Iterator[None]:
    """A gate is closed for a while: nothing is claimed or recovered."""
    path = stage.group(action).paths.gate(stage.partition(action).topic)
    if stage.ensemble.tree.get(path) is not None:
        stage.write_by_hand(SetData(path, f"{CommandPaths.RESETS}/some".encode()))
        yield
        stage.write_by_hand(SetData(path, OPEN))


def _pause(stage: Stage, action: Action) -> Iterator[None]:
    """The group, or (flag) one member, is paused."""
    consumer, paths = stage.pick(stage.living(), action).consumer_id, stage.group(action).paths
    path = paths.pause("operator", consumer if action.flag else None)
    if stage.ensemble.tree.get(paths.pauses) is not None and stage.ensemble.tree.get(path) is None:
        stage.write_by_hand(Create(path))
        yield
        stage.write_by_hand(Delete(path))


def _owner_deleted(stage: Stage, action: Action) -> None:
    tp, group = stage.partition(action), stage.group(action)
    path = group.paths.owner(*tp)
    if stage.ensemble.tree.get(path) is not None:
        group.judge.disowned(tp)
        stage.write_by_hand(Delete(path))


def _stranger(stage: Stage, action: Action) -> None:
    """Another tool registers in the group, in a format of its own."""
    path, tree = stage.paths.member("stranger"), stage.ensemble.tree
    if tree.get(stage.paths.ids) is not None and tree.get(path) is None:
        stage.write_by_hand(Create(path, b'{"version": 1, "subscription": {"orders": 1}}'))


def _partition(stage: Stage, action: Action) -> TopicPartition:
    """Return the action's partition; larger actions prefer one without an owner."""
    owners = stage.judge.owners()
    unowned = [tp for tp in stage.partitions() if owners.get(tp) is None]
    return unowned[action.where % len(unowned)] if unowned and action.size > 1 else stage.partition(action)


def _offset_taken(data: bytes | None, stage: Stage, action: Action) -> Iterator[None]:
    """An offset node is overwritten or deleted (None); the flag restores it."""
    tp, tree = _partition(stage, action), stage.ensemble.tree
    path = stage.paths.offset(*tp)
    if data == RUBBISH:
        stage.judge.refused.add(tp)
    if stage.judge.commit_of(tp) is None or tree.get(path) is None:
        return
    for owner in stage.living() if action.size == WITH_ITS_OWNER else ():
        if owner.name == stage.judge.owners()[tp] and len(stage.living()) > 1:
            stage.kill(owner)  # else its next commit puts the offset back
    stage.judge.offset_taken(tp)
    stage.write_by_hand(Delete(path) if data is None else SetData(path, data))
    zxid = tree.zxid
    if not action.flag and data != RUBBISH:
        return
    yield
    node = tree.get(path)
    if node is None if data is None else node is not None and node.stat.mzxid == zxid:  # no member has committed
        stage.judge.offset_mended(tp)
        offset = b"%d" % (stage.judge.commit_of(tp) or 0)
        write: Op = Create(path, offset) if data is None else SetData(path, offset)
        stage.write_by_hand(write)


def _refused(node: Callable[[GroupPaths, str, int], str], stage: Stage, action: Action) -> Iterator[None]:
    """The group may not write a node, nor (flag) read it."""
    tp, tree = _partition(stage, action), stage.ensemble.tree
    path = node(stage.paths, *tp)
    if tree.get(path) is None:
        return
    stage.judge.refused.add(tp)
    tree.give(path, ADMIN if action.flag else READABLE)
    yield
    if tree.get(path) is not None:
        tree.give(path, ANONYMOUS)


# -- subscribers, and Kafka groups that offsets are mirrored to -------------------------------------------------------------


def _trouble(what: str, url: str, stage: Stage, action: Action) -> Iterator[None]:
    """A receiver mistreats some events, or (flag) all, for a while."""
    if (receivers := stage.receivers) is not None:
        trouble = Trouble(what, url, 1 if action.flag else action.size + 1, action.seconds)
        receivers.troubles.append(trouble)
        yield
        receivers.troubles.remove(trouble)


def _groups_hang(stage: Stage, action: Action) -> Iterator[None]:
    """Requests, or (flag) half of them, are not answered, and executed late."""
    if (mirrors := stage.mirrors) is not None:
        mirrors.hangs, mirrors.share = action.seconds, 2 if action.flag else 1
        yield
        mirrors.hangs = 0.0


def _groups_are(state: str, troubled: bool, stage: Stage, action: Action) -> Iterator[None]:
    """A state of the coordinator of Kafka's groups lasts for a while."""
    setattr(stage.world.groups, state, troubled)
    yield
    setattr(stage.world.groups, state, not troubled)


def _groups_live(stage: Stage, action: Action) -> Iterator[None]:
    stage.world.groups.live.add(stage.world.group)
    yield
    stage.world.groups.live.discard(stage.world.group)


def _groups_denied(stage: Stage, action: Action) -> Iterator[None]:
    topic = stage.partition(action).topic
    stage.world.groups.denied.add(topic)
    yield
    stage.world.groups.denied.discard(topic)


#: Members leave a partition alone if a node of it is refused, or holds no offset; the others go on.
REFUSALS: Mapping[str, Fault] = {
    "offset garbled": partial(_offset_taken, RUBBISH),
    "offset refused": partial(_refused, GroupPaths.offset),
    "epoch refused": partial(_refused, GroupPaths.epoch),
}
KINDS: Mapping[str, Fault] = {
    "gap": _gap,
    "grow": _grow,
    "retain": _retain,
    "cut": _cut,
    "leader lost": _leader_lost,
    "brokers down": _brokers_down,
    "client fails": _client_fails,
    "other client": _other_client,
    "join": _join,
    "crowd": partial(_join, count=2),
    "leave": _leave,
    **{kind: partial(_to_one, kind) for kind in TO_ONE},
    "dies writing": _dies_writing,
    "restart": _restart,
    "double": _double,
    "slow callback": _slow_callback,
    "hang": _hang,
    "lag": _lag,
    "outage": _outage,
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
    "offset emptied": partial(_offset_taken, b""),
    "offset deleted": partial(_offset_taken, None),
    **REFUSALS,
    **{
        f"subscriber {what}": partial(_trouble, what, SUBSCRIBER)
        for what in ("refuses", "fails", "busy", "hangs", "late", "cuts", "dead")
    },
    **{f"replies {what}": partial(_trouble, what, REPLIES) for what in ("refuses", "fails", "cuts")},
    "groups hang": _groups_hang,
    "groups down": partial(_groups_are, "is_up", False),  # no broker takes a mirror's connection
    "groups load": partial(_groups_are, "loading", True),  # the coordinator has just been elected
    "groups live": _groups_live,
    "groups denied": _groups_denied,
}
