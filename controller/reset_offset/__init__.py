"""A reset moves the offsets of a running group, exactly once.

    command = ResetCommand(name=new_name(wall), ref=ref, info=info, spec=ResetSpec(to=To.EARLIEST), created=wall)
    await submit(zk, command)

and any process that runs a `ResetController` carries it out; a `ControllerFactory` makes one.

A reset is a node that holds its state. Each step is one transaction conditional on that node's version, so any number
of leaders may run, and each may die. Consumers are stopped and started by a `DataPlane`; brokers are asked by
`TopicLogs`: this room knows no Kafka client. Begin with `model.py` (states and conditions), then `reconciler.py`, one
function per state.
"""

from inbound.controller.reset_offset.command import ResetCommand, new_name
from inbound.controller.reset_offset.command_store import cancel, listing, prune, read, submit
from inbound.controller.reset_offset.consumer_manager import ConsumerManager, GroupLifecycle, GroupLockedError
from inbound.controller.reset_offset.controller import ControllerFactory, ResetController
from inbound.controller.reset_offset.data_plane import DataPlane, Replica, ZkDataPlane
from inbound.controller.reset_offset.model import (
    Condition,
    ConditionType,
    Moved,
    Ref,
    RefInfo,
    RefMapper,
    ResetSpec,
    State,
    To,
    TopicLog,
    TopicLogs,
)

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
