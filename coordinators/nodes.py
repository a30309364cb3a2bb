"""What stands in the nodes. Every JSON node carries the format version `v`; unknown keys of newer versions are kept out
of the way, so that neighbouring versions of inbound work in one group."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inbound.coordinators.topic_ids import canonical, same_topic
from inbound.errors import InboundError
from inbound.topic_partition import MOST_OFFSET

FORMAT = 1
OPEN = b"open"
#: Kafka counts leaders with 32 bits. What is larger was not written by inbound, and no client takes it.
MOST_LEADER_EPOCH = (1 << 31) - 1
_MOST_NUMBER = (1 << 64) - 1


class BadNodeError(InboundError):
    """A node holds something that this version cannot read."""


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
    #: Names the lock file that the process holds for its id, and the machine's boot: who holds the same file now knows
    #: that the process is dead.
    lock: str | None = None
    #: Which subscription the member serves and how it goes: see `inbound.coordinators.subscriber_status`. None: none.
    subscriber: dict[str, Any] | None = None

    def encode(self) -> bytes:
        body = {"v": FORMAT, **asdict(self)}
        if self.subscriber is None:
            del body["subscriber"]
        return json.dumps(body, separators=(",", ":")).encode()


def decode_member(path: str, data: bytes) -> MemberInfo:
    """Read an id node.

    Raises:
        BadNodeError: the node is no JSON object of a version we know.
    """
    body = read_object(path, data)
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
            subscriber=_mapping(body.get("subscriber")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: not the id node of an inbound consumer ({error!r}); is another tool using it?"
        ) from None


#: So many ids of former topics of one name are remembered.
FORMER_IDS = 8


@dataclass(frozen=True)
class ResetNote:
    """What a reset leaves in the epoch node: who claims next tells it to the processor and to the ledger.

    Claims carry it on until the group's offset has left `new`, so that it is told although the first claimant died.
    """

    command: str  # its node's path
    old: int | None  # the group's offset before; None: there was none
    new: int
    #: The group's offset before all moves since the last commit, so that a proof can tell them from what nobody has noted:
    #: of several it may see the last alone. None: there was none, or that is not known.
    since: int | None = None
    #: A member has claimed the partition, before the moves or since, and committed nothing.
    claimed: bool = False


@dataclass(frozen=True)
class RecreationNote:
    """What the claim that begins a recreated topic leaves in the epoch node, for as long as nothing is committed.

    Its answer can be lost, or its process can die, before log, processor or ledger say that the topic was recreated: the
    next claim says it then. The id of the deleted topic is the first of `EpochInfo.former`.
    """

    old: int | None  # the group's offset in the deleted topic; None: there was none


@dataclass(frozen=True)
class EpochInfo:
    """The data of `epochs/<topic>/<partition>`: who claimed last. The node's *version* is the fencing token."""

    consumer: str
    session: int
    nonce: str
    #: Which topic of that name the group's offset is about; None where the brokers did not say.
    topic_id: str | None = None
    #: Topics of that name that are known to be deleted, the last one first. Who believes in one has old metadata.
    former: tuple[str, ...] = ()
    #: The reset that moved the group's offset last, as long as nothing was committed since.
    reset: ResetNote | None = None
    #: Under which leader of the partition what is before the group's offset was written, as Kafka counts leaders: who reads
    #: on there can have the brokers compare. None: not known.
    leader_epoch: int | None = None
    #: The topic was deleted and recreated, and nothing was committed since.
    recreated: RecreationNote | None = None
    #: A member has claimed the partition before a reset fenced it: since then, `session` tells it no more.
    claimed: bool = False

    @property
    def was_claimed(self) -> bool:
        """Whether a member is known to have claimed the partition: claims have a session, moves have none."""
        return self.claimed or bool(self.session)

    @property
    def noted_offset(self) -> int | None:
        """Return where the group's offset is as long as the notes hold; None: there is no note."""
        if self.reset is not None:
            return self.reset.new
        return 0 if self.recreated is not None else None

    def without_notes(self) -> EpochInfo:
        """Return this as it is once something is committed."""
        return self if self.noted_offset is None else replace(self, reset=None, recreated=None)

    def is_about(self, topic_id: str | None) -> bool:
        """Whether the offset is about that topic: not if the ids differ, or cannot be compared; it is if one is not known."""
        return topic_id is None or self.topic_id is None or bool(same_topic(self.topic_id, topic_id))

    def of_topic(self, topic_id: str | None) -> EpochInfo:
        """Return this as it is once the offset is about `topic_id`, as the brokers named it; None: they named none.

        An id of the same topic stays as it is written: members of earlier releases compare the text.
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
        """Return what a move of the offset to one of that topic has before it, where `old` stands.

        Of a former topic no claim and no note; and no note of a move to elsewhere than `old`.
        """
        mine = self if self.is_about(topic_id) else replace(self.of_topic(topic_id), session=0, reset=None)
        return mine if mine.noted_offset == old else mine.without_notes()

    def knows_as_former(self, topic_id: str) -> bool:
        """Whether the group knows that the topic with that id was deleted.

        The current topic is none of these, although earlier releases left its id there in another form.
        """
        if self.topic_id is not None and same_topic(self.topic_id, topic_id):
            return False
        return any(same_topic(known, topic_id) for known in self.former)

    def noted(self) -> ResetNote | None:
        """Return the reset's note as whoever follows in the node is to keep it: claims are told by their session."""
        return self.reset if self.reset is None or not self.session else replace(self.reset, claimed=True)

    def moved(self, command: str, old: int | None, new: int) -> ResetNote:
        """Return the note of a move."""
        earlier = self.noted()
        if earlier is None or earlier.new != old:
            return ResetNote(command, old, new, old, old is None and self.was_claimed)
        return ResetNote(command, old, new, earlier.since, earlier.claimed)

    def encode(self) -> bytes:
        body = {"v": FORMAT, **asdict(self)}
        for name in ("reset", "leader_epoch", "recreated"):
            if body[name] is None:
                del body[name]
        if not self.claimed:
            del body["claimed"]
        return json.dumps(body, separators=(",", ":")).encode()


def decode_epoch(path: str, data: bytes) -> EpochInfo | None:
    """Read an epoch node; None where nobody has claimed yet."""
    if not data:
        return None
    try:
        body = _object(data)
        _refuse_if_newer(path, body)
        topic_id, former, leader = body.get("topic_id"), body.get("former") or (), body.get("leader_epoch")
        return EpochInfo(
            str(body["consumer"]),
            _number(body["session"], -_MOST_NUMBER),
            str(body["nonce"]),
            None if topic_id is None or not canonical(str(topic_id)) else str(topic_id),
            tuple(map(str, former)),
            _reset_note(body.get("reset")),
            _number_or_none(leader, MOST_LEADER_EPOCH),
            _recreation_note(body.get("recreated")),
            bool(body.get("claimed")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: holds {data[:40]!r}, not the epoch of an inbound group ({error!r}): another tool, or a hand, has written it; "
            "leave the node: the next claim writes it anew"
        ) from None


@dataclass(frozen=True)
class TopicInfo:
    """The data of `epochs/<topic>`: the topic as the group first saw it.

    A partition numbered `partitions` or above was added later, and starts at its smallest offset: with `latest`,
    what was published before we noticed it would be lost.
    """

    partitions: int
    topic_id: str | None = None

    def encode(self) -> bytes:
        return json.dumps({"v": FORMAT, **asdict(self)}, separators=(",", ":")).encode()


def decode_topic(path: str, data: bytes) -> TopicInfo:
    """Read an `epochs/<topic>` node; one without data was made by hand: every partition counts as known."""
    if not data:
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
    """Read an offset node: decimal text; empty where nothing was committed yet.

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


def _recreation_note(value: Any) -> RecreationNote | None:
    if value is None:
        return None
    return RecreationNote(_number_or_none(value["old"], MOST_OFFSET))


def _mapping(value: Any) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, dict) else None


def read_object(path: str, data: bytes) -> dict[str, Any]:
    """Return the JSON object in a node.

    Raises:
        BadNodeError: it is none, or of a format that this version does not know.
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
    """Return the JSON object in `data`; ValueError if it is none of inbound's."""
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
