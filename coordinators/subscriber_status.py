"""The state of the subscription that a group serves, for Knative.

Each member reports in its id node which generation it runs, and why it does not consume, if so. The longest-serving member
puts the resulting status into the group's `subscriber` node. Pure, but for the bytes of that node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.nodes import encode_object
from inbound.coordinators.rights import named

Ready = Literal["True", "False", "Unknown"]

#: A message names so many things, and counts the others.
NAMED = 5


@dataclass(frozen=True, kw_only=True)
class SubscriberSaid:
    """One member's report on the subscription, in its id node."""

    uid: str
    generation: int | None  # None: the configuration has none, and members compare digests
    digest: str  # of the options
    stopped: tuple[str, ...] = ()  # why the member, or some of its partitions, does not consume
    note: str | None = None  # for people, although the member consumes: the subscriber is down

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON, without unset fields."""
        return {key: value for key, value in asdict(self).items() if value not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class SubscriberStatus:
    """One subscription's condition; names in camel case are Knative's."""

    uid: str
    observedGeneration: int | None
    ready: Ready
    message: str

    def encode(self) -> bytes:
        return encode_object(asdict(self))


def status_of(said: SubscriberSaid, view: GroupView | None, *, connected: bool) -> SubscriberStatus:
    """Return the status of the subscription that our report is about.

    `view` is the group as last seen, None where it was not seen yet; its `owned` are the partitions that have an owner.
    """
    ready: Ready = "True"
    if not connected:
        ready, message = "Unknown", "ZooKeeper does not answer; what holds is known when it is back"
    elif view is None:
        ready, message = "Unknown", "not known yet: this process is still joining the group"
    elif reasons := _reasons(said, view):
        ready, message = "False", "; ".join(reasons)
    else:
        message = "; ".join(_notes(view.members))
    return SubscriberStatus(uid=said.uid, observedGeneration=said.generation, ready=ready, message=message)


def _reasons(said: SubscriberSaid, view: GroupView) -> list[str]:
    """Return why some member or partition does not consume in our generation."""
    if not view.members:
        return ["the group has no member"]
    reasons = []
    if not sum(view.partitions.values()):
        reasons.append("its topic has no partition that Kafka knows of")
    free = view.free()
    if free:
        total = sum(view.partitions.values())
        reasons.append(f"no owner for {len(free)} of {total} partitions: {named(free, NAMED)}")
    for member in sorted(view.members, key=lambda m: (m.joined, m.consumer_id)):
        reasons += _of_member(said, member)
    return reasons


def _of_member(said: SubscriberSaid, member: Member) -> list[str]:
    theirs = member.subscriber
    if not isinstance(theirs, Mapping) or "uid" not in theirs:
        return [f"member {member.consumer_id} does not say which generation it runs; is it of an older version?"]
    reasons = []
    if theirs["uid"] != said.uid:
        reasons.append(f"member {member.consumer_id} serves the subscriber {theirs['uid']}")
    elif said.generation is not None and theirs.get("generation") != said.generation:
        reasons.append(f"member {member.consumer_id} is at generation {theirs.get('generation')}")
    elif said.generation is None and theirs.get("digest") != said.digest:
        reasons.append(f"member {member.consumer_id} runs other options")
    stopped = theirs.get("stopped") or ()
    return reasons + ([f"member {member.consumer_id}: {named(stopped, NAMED)}"] if stopped else [])


def _notes(members: Collection[Member]) -> list[str]:
    notes = (m.subscriber.get("note") for m in members if m.subscriber is not None)
    return sorted({str(note) for note in notes if note})
