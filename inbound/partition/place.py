"""Where a held partition is, who may touch it, and its fate.

A partition is in exactly one place, and only the owner of that place may touch it: so callbacks of one partition never
overlap, without flags.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from inbound.runtime.transitions import Transitions


class Place(Enum):
    """Where a partition is, and so who may touch it."""

    STARTING = "starting"  # the reader resolves its position, the committer may be writing the first one
    SCHEDULED = "scheduled"  # in the heap: due at a time, or when records come
    RUNNING = "running"  # with one worker, or one turn of the event loop
    SETTLING = "settling"  # waits for commits in flight
    LEAVING = "leaving"  # with the controller, which deletes the owner node
    ABANDONED = "abandoned"  # given up while its callback still runs; not claimed again before that ends
    GONE = "gone"

    __hash__ = object.__hash__  # by identity, without a step of the interpreter: looked up several times for each batch


class Step(Enum):
    """An event that moves a partition."""

    START = "start"  # its position is known, and committed
    TAKE = "take"  # a worker took it
    PUT_BACK = "put back"  # the worker is done, nothing to commit
    PLACE = "place"  # the processor has given a start; the reader checks it against the log
    SETTLE = "settle"  # the worker is done, and nothing more is delivered before commits have landed
    SETTLED = "settled"  # they have, or were refused
    GIVE_UP = "give up"  # only the owner node is left to delete
    LEAVE = "leave"  # it is not ours any more
    ABANDON = "abandon"  # its callback did not end in time

    __hash__ = object.__hash__


P, S = Place, Step
TRANSITIONS = Transitions(
    "partition",
    {
        (P.STARTING, S.START): P.SCHEDULED,
        (P.STARTING, S.GIVE_UP): P.LEAVING,  # asked to release before the first batch: no callback has seen it
        (P.STARTING, S.LEAVE): P.GONE,
        (P.SCHEDULED, S.TAKE): P.RUNNING,
        (P.RUNNING, S.PUT_BACK): P.SCHEDULED,
        (P.RUNNING, S.PLACE): P.STARTING,  # on_claim has answered
        (P.RUNNING, S.SETTLE): P.SETTLING,
        (P.RUNNING, S.GIVE_UP): P.LEAVING,  # on_stream_termination is done, with nothing to commit
        (P.RUNNING, S.LEAVE): P.GONE,  # PartitionLost was told
        (P.RUNNING, S.ABANDON): P.ABANDONED,
        (P.SETTLING, S.SETTLED): P.SCHEDULED,
        (P.SETTLING, S.GIVE_UP): P.LEAVING,  # the last commit, of on_stream_termination, has landed
        (P.SETTLING, S.ABANDON): P.GONE,  # ZooKeeper did not answer until the end of the shutdown
        (P.SCHEDULED, S.ABANDON): P.GONE,
        (P.STARTING, S.ABANDON): P.GONE,
        (P.LEAVING, S.LEAVE): P.GONE,
        (P.LEAVING, S.ABANDON): P.GONE,
        (P.ABANDONED, S.LEAVE): P.GONE,  # the callback has ended after all; its answer is discarded
    },
)


#: From here on no worker, reader or committer moves the partition.
DRAINED = frozenset({Place.LEAVING, Place.ABANDONED, Place.GONE})


class Fate(IntEnum):
    """A partition's fate; it only gets worse."""

    KEEP = 0
    RELEASE = 1  # gracefully: let the batch end, commit, notify the processor, delete the owner node
    DROP = 2  # at once and without commit: it is not ours any more
