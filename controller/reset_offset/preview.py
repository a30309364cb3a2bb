"""What a reset would do now: for `--dry-run`, and to refuse what cannot be done before it is submitted."""

from __future__ import annotations

from dataclasses import dataclass

from inbound.controller.reset_offset.group import about, checked
from inbound.controller.reset_offset.model import Moved, RefInfo, ResetSpec, TopicLogs
from inbound.controller.reset_offset.targets import check, chosen, resolve
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ResetError


@dataclass(frozen=True)
class Preview:
    """What would be moved. The group may run, so its offsets may be others by the time that it has stopped."""

    info: RefInfo
    moved: tuple[Moved, ...]


async def preview(zk: ZooKeeper, logs: TopicLogs, info: RefInfo, spec: ResetSpec, now: float) -> Preview:
    """Return what a reset would move if it were done now; `now` is in seconds since 1970. Changes nothing.

    A coroutine on `inbound.coordinators.tasks`.

    Raises:
        ResetError: it cannot be done: no such group, topic, partition or offset; the message says what there is.
        TransientError: ZooKeeper or a broker does not answer.
    """
    nodes = checked(zk, info)
    await nodes.check_known()
    found = await logs.ask(info.topic, spec.time)
    if found is None:
        raise ResetError(f"topic {info.topic}: the brokers know none of this name; name another one, or make it")
    check(spec, found, now)
    wanted = chosen(spec, found)
    epochs = await nodes.epochs(wanted)
    try:
        committed = await nodes.offsets(wanted)
    except BadNodeError as error:
        raise ResetError(f"{error}; or delete the node: the group has then no offset in that partition") from None
    return Preview(info, tuple(resolve(spec, about(committed, epochs, found.topic_id), found)))
