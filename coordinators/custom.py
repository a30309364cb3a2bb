"""A user's coordinator, kept within bounds."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.rights import TopicRights, about_group, named, portions, rights_of
from inbound.topic_partition import TopicPartition


class CustomCoordinator(ZkCoordinator):
    """Runs a user's coordinator.

    The parts of its plan that a plan must not have are left out, and an error in it moves nothing. Other members cannot
    know the plan and count this member as dynamic; a notice says where it has more or less than they leave to it.
    """

    def __init__(self, name: str, coordinator: ZkCoordinator) -> None:
        """`name` is the configuration's `module:Class`, which the id node has."""
        super().__init__(coordinator.options)
        self.kind = name
        self._coordinator = coordinator
        self._parameters = dict(coordinator.parameters())

    def parameters(self) -> dict[str, Any]:
        return dict(self._parameters)

    def plan(self, view: GroupView) -> Plan:
        gone = sorted(tp for tp in view.mine if tp.topic not in view.partitions)
        if all(m.consumer_id != view.me for m in view.members):
            return Plan(release=tuple(gone))  # the others do not see us yet
        rights = rights_of(view)
        try:
            plan, faults = _within_bounds(self._coordinator.plan(view), view)
        except BaseException as error:  # also sys.exit() in it: the controller's thread serves all channels
            share = sum(portion.keep for portion in portions(view.me, rights))
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = (
                f"{self.kind}.plan failed: {type(error).__name__}: {error} ({place.filename}:{place.lineno}); nothing is "
                "taken or released until it returns a plan; correct it"
            )
            return Plan(share=share, notices=(failure, *about_group(view, rights)))
        after = (view.mine - set(plan.release)) | set(plan.take)
        notices = [
            *(f"{self.kind}.plan {fault}; that is left out; correct it" for fault in faults),
            *plan.notices,
            *self._beside_its_share(view, rights, after),
            *about_group(view, rights),
        ]
        release = tuple(dict.fromkeys((*gone, *plan.release)))
        return Plan(plan.take, release, plan.share or len(after), tuple(dict.fromkeys(notices)))

    def _beside_its_share(
        self, view: GroupView, rights: Mapping[str, TopicRights], after: Collection[TopicPartition]
    ) -> Iterator[str]:
        """Yield a notice where the plan leaves others short, or partitions ownerless."""
        reserved = sorted(tp for tp in after if tp.topic in rights and tp in rights[tp.topic].listed)
        if reserved:
            yield f"{self.kind} keeps {named(reserved)} from the static member that lists them; let its plan release them"
        free = set(view.free())
        for portion in portions(view.me, rights):
            topics = {of.topic: of for of in portion.topics}
            has = [tp for tp in after if tp.topic in topics and tp not in topics[tp.topic].listed]
            untaken = [tp for of in portion.topics for tp in of.unreserved() if tp in free and tp not in after]
            where = named(sorted(topics))
            if len(has) > portion.keep:
                yield (
                    f"{self.kind} has {len(has)} of the partitions of {where} where the other members leave it "
                    f"{portion.keep}, and they go without; let its plan release the rest"
                )
            elif (without := min(portion.keep - len(has), len(untaken))) > 0:
                yield (
                    f"{self.kind} has {len(has)} of the partitions of {where} where the other members leave it "
                    f"{portion.keep}; without an owner: {without}; let its plan take that many more"
                )


def _within_bounds(plan: object, view: GroupView) -> tuple[Plan, list[str]]:
    """Return a plan's allowed part, and the faults of the rest."""
    if not isinstance(plan, Plan):
        raise TypeError(f"need a Plan, got {plan!r:.80}")
    take, release = dict.fromkeys(plan.take), dict.fromkeys(plan.release)
    free = dict.fromkeys(view.free())
    faults = []
    if wrong := [tp for tp in take if tp not in free]:
        faults.append(f"takes {named(wrong)}, which is not among the ownerless partitions of its topics")
    if wrong := [tp for tp in release if tp not in view.mine]:
        faults.append(f"releases {named(wrong)}, which this member does not have")
    # The view's own values: a plain tuple is equal to a TopicPartition, and lacks its names.
    taken = tuple(tp for tp in free if tp in take)
    released = tuple(tp for tp in sorted(view.mine) if tp in release)
    notices: object = plan.notices
    said = (notices,) if isinstance(notices, str) else tuple(map(str, plan.notices))
    return Plan(taken, released, int(plan.share), said), faults
