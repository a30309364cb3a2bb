"""The data of the nodes.

Every JSON node has the format version `v`. Unknown keys of newer versions are ignored, so that neighbouring versions of
inbound work in one group.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inbound.errors import InboundError
from inbound.topic_partition import MOST_OFFSET

# Kafka gives each topic an id of 16 bytes. kafka-python writes it as a UUID, librdkafka as base64 with `+` and `/`, Java as
# base64 with `-` and `_`. Earlier releases stored the text of their client, so a node may hold any of these forms.

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{22}(==)?")


def canonical(topic_id: str) -> str | None:
    """Return an id as a UUID; None for the zero id.

    Brokers without ids answer the zero id. An id in an unknown form is returned as it is.
    """
    known = _uuid(topic_id)
    if known is None:
        return topic_id
    return str(known) if known.int else None


def same_topic(one: str, other: str) -> bool | None:
    """Return whether two ids name one topic, None if that is unknown.

    That is unknown where only one has a known form. Two ids in unknown forms are compared as text.
    """
    if one == other:
        return True
    a, b = _uuid(one), _uuid(other)
    if (a is None) != (b is None):
        return None
    return a is not None and a == b


def _uuid(text: str) -> uuid.UUID | None:
    if _BASE64.fullmatch(text):
        return uuid.UUID(bytes=urlsafe_b64decode(text[:22].replace("+", "-").replace("/", "_") + "=="))
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


FORMAT = 1
OPEN = b"open"
#: Kafka counts leaders with 32 bits. Inbound writes no larger number, and no client takes it.
MOST_LEADER_EPOCH = (1 << 31) - 1
_MOST_NUMBER = (1 << 64) - 1


class BadNodeError(InboundError):
    """This version cannot read a node's data."""


@dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """The data of `ids/<consumer>`."""

    host: str
    pid: int
    started: str  # ISO 8601, for people
    topics: tuple[str, ...]
    coordinator: dict[str, Any] = field(default_factory=lambda: {"type": "dynamic"})
    joined: int | None = None  # zxid of the first registration; None: the node's own czxid
    admin: str | None = None  # URL of the admin listener
    #: The lock file that the process holds for its id, and the machine's boot: a process that holds the same file now knows
    #: that this one is dead.
    lock: str | None = None
    #: The subscription that the member serves, and its state: see `inbound.coordinators.subscriber_status`. None: none.
    subscriber: dict[str, Any] | None = None

    def encode(self) -> bytes:
        return encode_object(asdict(self), "subscriber")


def decode_member(path: str, data: bytes) -> MemberInfo:
    """Read an id node.

    Raises:
        BadNodeError: the node is no JSON object of a known version.
    """
    body = read_object(path, data)
    subscriber = body.get("subscriber")
    try:
        return MemberInfo(
            host=str(body["host"]),
            pid=_number(body["pid"]),
            started=str(body["started"]),
            topics=tuple(map(_text, body["topics"])),
            coordinator=dict(body["coordinator"]),
            joined=_number_or_none(body.get("joined")),
            admin=body.get("admin"),
            lock=body.get("lock"),
            subscriber=subscriber if isinstance(subscriber, dict) else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: not the id node of an inbound consumer ({error!r}); is another tool using it?"
        ) from None


#: Ids of former topics of one name that the node keeps.
FORMER_IDS = 8


@dataclass(frozen=True)
class ResetNote:
    """A reset's note in the epoch node: the next claimant reports it.

    Claims keep it until the group's offset has left `new`, so that it is reported although the first claimant died.
    """

    command: str  # its node's path
    old: int | None  # the group's offset before; None: there was none
    new: int
    #: The group's offset before all moves since the last commit, so that a proof can tell them from moves without a note:
    #: of several moves it may see only the last. None: there was none, or that is not known.
    since: int | None = None
    #: A member has claimed the partition, before the moves or since, and committed nothing.
    claimed: bool = False


@dataclass(frozen=True)
class RecreationNote:
    """A topic's recreation, noted in the epoch node until a commit.

    The claim that begins the topic writes it: its answer can be lost, or its process can die, before log, processor or ledger
    report the recreation. The next claim reports it then. The id of the deleted topic is the first of `EpochInfo.former`.
    """

    old: int | None  # the group's offset in the deleted topic; None: there was none


@dataclass(frozen=True)
class EpochInfo:
    """The last claim of a partition, in `epochs/<topic>/<partition>`.

    The node's *version* is the fencing token.
    """

    consumer: str
    session: int
    nonce: str
    #: The topic of that name that the group's offset is about; None where the brokers did not say.
    topic_id: str | None = None
    #: Deleted topics of that name, the last one first. Brokers and clients that name one have old metadata.
    former: tuple[str, ...] = ()
    #: The reset that moved the group's offset last, as long as nothing was committed since.
    reset: ResetNote | None = None
    #: The leader, as Kafka counts them, under which the record before the group's offset was written: with it the next
    #: reader can have the brokers compare. None: not known.
    leader_epoch: int | None = None
    #: The topic was deleted and recreated, and nothing was committed since.
    recreated: RecreationNote | None = None
    #: A member had claimed the partition before a reset fenced it, which cleared `session`.
    claimed: bool = False

    @property
    def was_claimed(self) -> bool:
        """Return whether a member is known to have claimed the partition."""
        return self.claimed or bool(self.session)  # claims have a session, moves have none

    @property
    def noted_offset(self) -> int | None:
        """Return the group's offset according to the notes, if any."""
        if self.reset is not None:
            return self.reset.new
        return 0 if self.recreated is not None else None

    def without_notes(self) -> EpochInfo:
        """Return the node's data after a commit."""
        return self if self.noted_offset is None else replace(self, reset=None, recreated=None)

    def is_about(self, topic_id: str | None) -> bool:
        """Return whether the offset is about that topic, as far as known.

        It is if one id is unknown; it is not if the ids differ or cannot be compared.
        """
        return topic_id is None or self.topic_id is None or bool(same_topic(self.topic_id, topic_id))

    def of_topic(self, topic_id: str | None) -> EpochInfo:
        """Return the node's data once the offset is about `topic_id`.

        `topic_id` is the brokers' id; None: they named none. An id of the same topic stays as it is written: members of
        earlier releases compare the text.
        """
        if topic_id is None:
            return self
        if self.topic_id is None:
            return replace(self, topic_id=topic_id, recreated=None)
        if self.is_about(topic_id):
            return self
        former = [self.topic_id, *(known for known in self.former if not same_topic(known, topic_id))]
        return replace(self, topic_id=topic_id, former=tuple(former[:FORMER_IDS]), recreated=None, claimed=False)

    def before_a_move(self, topic_id: str | None, old: int | None) -> EpochInfo:
        """Return the node's data that a move from `old` starts from.

        Claims and notes of a former topic are left out, and so are notes of a move to another offset than `old`.
        """
        mine = self if self.is_about(topic_id) else replace(self.of_topic(topic_id), session=0, reset=None)
        return mine if mine.noted_offset == old else mine.without_notes()

    def knows_as_former(self, topic_id: str) -> bool:
        """Return whether the group knows that the topic was deleted.

        The current topic was not, although earlier releases left its id there in another form.
        """
        if self.topic_id is not None and same_topic(self.topic_id, topic_id):
            return False
        return any(same_topic(known, topic_id) for known in self.former)

    def noted(self) -> ResetNote | None:
        """Return the reset's note for the next writer of the node."""
        return self.reset if self.reset is None or not self.session else replace(self.reset, claimed=True)

    def moved(self, command: str, old: int | None, new: int) -> ResetNote:
        earlier = self.noted()
        if earlier is None or earlier.new != old:
            return ResetNote(command, old, new, old, old is None and self.was_claimed)
        return ResetNote(command, old, new, earlier.since, earlier.claimed)

    def encode(self) -> bytes:
        return encode_object(asdict(self), "reset", "leader_epoch", "recreated", "claimed")


def decode_epoch(path: str, data: bytes) -> EpochInfo | None:
    """Read an epoch node; None where there was no claim yet."""
    if not data:
        return None
    try:
        body = _object(data)
        _refuse_if_newer(path, body)
        topic_id, former, recreated = body.get("topic_id"), body.get("former") or (), body.get("recreated")
        return EpochInfo(
            str(body["consumer"]),
            _number(body["session"], -_MOST_NUMBER),
            str(body["nonce"]),
            None if topic_id is None or not canonical(str(topic_id)) else str(topic_id),
            tuple(map(str, former)),
            _reset_note(body.get("reset")),
            _number_or_none(body.get("leader_epoch"), MOST_LEADER_EPOCH),
            None if recreated is None else RecreationNote(_number_or_none(recreated["old"], MOST_OFFSET)),
            bool(body.get("claimed")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: holds {data[:40]!r}, not the epoch of an inbound group ({error!r}): another tool, or a hand, has written it; "
            "leave the node: the next claim rewrites it"
        ) from None


@dataclass(frozen=True)
class TopicInfo:
    """The topic as the group first saw it, in `epochs/<topic>`.

    A partition numbered `partitions` or above was added later, and starts at its smallest offset: with `latest`, the group
    would lose the records that were published before it noticed the partition.
    """

    partitions: int
    topic_id: str | None = None

    def encode(self) -> bytes:
        return encode_object(asdict(self))


def decode_topic(path: str, data: bytes) -> TopicInfo:
    """Read an `epochs/<topic>` node."""
    if not data:  # made by hand: every partition counts as known
        return TopicInfo(1 << 31)
    try:
        body = _object(data)
        _refuse_if_newer(path, body)
        return TopicInfo(_number(body["partitions"]), body.get("topic_id"))
    except (KeyError, TypeError, ValueError):
        raise BadNodeError(
            f"{path}: holds {data[:40]!r}, not what the group knows of the topic; empty the node, but keep it and its children: "
            "without data all partitions count as known from the start"
        ) from None


def decode_offset(path: str, data: bytes) -> int | None:
    """Read an offset node: decimal text, or empty before the first commit.

    Raises:
        BadNodeError: it is neither.
    """
    text = data.strip()
    if not text:
        return None
    if not text.isdigit() or len(text) > len(str(MOST_OFFSET)) or int(text) > MOST_OFFSET:
        raise BadNodeError(f"{path}: holds {data[:40]!r}, not an offset; write the next offset to read as decimal text")
    return int(text)


def encode_offset(offset: int) -> bytes:
    return b"%d" % offset


def _reset_note(value: Any) -> ResetNote | None:
    if value is None:
        return None
    old = _number_or_none(value["old"], MOST_OFFSET)
    since = _number_or_none(value.get("since", old), MOST_OFFSET)
    new = _number(value["new"], most=MOST_OFFSET)
    return ResetNote(str(value["command"]), old, new, since, bool(value.get("claimed")))


def _number(value: Any, least: int = 0, most: int = _MOST_NUMBER) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]!r} instead of a number from {least} to {most}")
    return value


def _number_or_none(value: Any, most: int = _MOST_NUMBER) -> int | None:
    return None if value is None else _number(value, most=most)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} instead of a text")
    return value


def encode_object(body: Mapping[str, Any], *optional: str) -> bytes:
    """Return an object as a node's data, without unset `optional` keys."""
    kept = {
        key: value for key, value in body.items() if key not in optional or (value is not None and value is not False)
    }
    return json.dumps({"v": FORMAT, **kept}, separators=(",", ":")).encode()


def read_object(path: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object in a node.

    Raises:
        BadNodeError: it is none, or of an unknown format.
    """
    try:
        body = _object(data)
    except ValueError:
        raise BadNodeError(
            f"{path}: holds {data[:40]!r}, not a node of inbound; remove it, or use another group name"
        ) from None
    _refuse_if_newer(path, body)
    return body


def _object(data: bytes) -> dict[str, Any]:
    """Return inbound's JSON object in `data`, or raise ValueError."""
    try:
        body = json.loads(data, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(body, dict) or not isinstance(body.get("v"), int):
        raise ValueError("no object with a format version")
    return body


def _refuse_if_newer(path: str, body: dict[str, Any]) -> None:
    if body["v"] > FORMAT + 1:
        raise BadNodeError(f"{path}: format {body['v']}, this inbound reads up to {FORMAT + 1}; upgrade this consumer")
