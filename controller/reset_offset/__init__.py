"""ResetOffset: repositions a running group on all replicas, exactly once.

    command = ResetCommand(name=new_name(wall), ref=ref, info=info, spec=ResetSpec(to=To.EARLIEST), created=wall)
    await submit(zk, command)

and whichever process runs a `ResetController` carries it out; a `ControllerFactory` makes one.
"""

from inbound.controller.reset_offset.commands import (
    ResetCommand,
    cancel,
    listing,
    new_name,
    prune,
    read,
    submit,
)
from inbound.controller.reset_offset.consumer_manager import ConsumerManager, GroupLifecycle, GroupLockedError
from inbound.controller.reset_offset.controller import ResetController
from inbound.controller.reset_offset.data_plane import DataPlane, Replica, ZkDataPlane
from inbound.controller.reset_offset.factory import ControllerFactory
from inbound.controller.reset_offset.model import (
    Condition,
    ConditionType,
    Moved,
    Ref,
    RefInfo,
    RefMapper,
    ResetSpec,
    To,
    TopicLog,
    TopicLogs,
)
from inbound.controller.reset_offset.states import State

__all__ = [
    "Condition",
    "ConditionType",
    "ConsumerManager",
    "ControllerFactory",
    "DataPlane",
    "GroupLifecycle",
    "GroupLockedError",
    "Moved",
    "Ref",
    "RefInfo",
    "RefMapper",
    "Replica",
    "ResetCommand",
    "ResetController",
    "ResetSpec",
    "State",
    "To",
    "TopicLog",
    "TopicLogs",
    "ZkDataPlane",
    "cancel",
    "listing",
    "new_name",
    "prune",
    "read",
    "submit",
]
