"""The options of `inbound offsets`: groups, partitions, and the target of resets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inbound.cli.shared.command import PARTITIONS, argument, flag, offset_number, one_of, parsed, several
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.zookeeper import user_here
from inbound.config import Config, parse_duration, parse_time, read_text
from inbound.config.units import parse_iso_duration
from inbound.controller.reset_offset import Ref, RefInfo, RefMapper, ResetCommand, ResetSpec, To, new_name
from inbound.coordinators.paths import path_part
from inbound.errors import ConfigError
from inbound.kafka.base import LogClient
from inbound.offsets.csv_file import read_csv
from inbound.offsets.gather import Reads, Way, reads_of
from inbound.offsets.model import ALL, PartitionSelection

#: Kinds of references in any case; other kinds stay as they are, for custom mappers.
_KINDS = {kind.lower(): kind for kind in ("Channel", "KafkaChannel", "Subscription")}


@dataclass(frozen=True)
class Chosen:
    """The groups and partitions that a command chooses, and their configuration."""

    config: Config
    reads: Mapping[str, Reads]  # by group
    groups: tuple[str, ...] | None  # None: all groups in ZooKeeper
    selection: PartitionSelection

    def connect(self, way: Way) -> LogClient:
        """Return a client of the brokers. Raises BrokerUnavailableError."""
        return way.connect(self.config.kafka)


def chosen(args: argparse.Namespace) -> Chosen:
    """Return the groups and partitions that `args` name.

    Raises:
        ConfigError: the configuration cannot be used, or the options do not fit together.
    """
    loaded = load_config(args)
    reads = reads_of(known_channels(loaded))
    everything = getattr(args, "all_groups", False)
    if everything and args.group:
        raise ConfigError("--all-groups does not go with --group: give one of the two")
    groups = tuple(path_part(name, "--group") for name in args.group) or tuple(reads)
    return Chosen(loaded.config, reads, None if everything else groups, selected(getattr(args, "topic", ())))


def selected(topics: Iterable[tuple[str, frozenset[int] | None]]) -> PartitionSelection:
    """Return the partitions that `--topic` names; repeated topics add up."""
    found: dict[str, frozenset[int] | None] = {}
    for name, partitions in topics:
        before = found.get(name, frozenset())
        found[name] = None if partitions is None or before is None else before | partitions
    return PartitionSelection(topics=found) if found else ALL


def topic_of(text: str) -> tuple[str, frozenset[int] | None]:
    """Return topic and partitions of `NAME` or `NAME:0,1`."""
    name, colon, numbers = text.partition(":")
    try:
        path_part(name, "topic")
        partitions = frozenset(map(_number, numbers.split(","))) if colon else None
    except (ConfigError, ValueError):
        raise argparse.ArgumentTypeError(
            f"need a topic, such as orders, or some of its partitions, such as orders:0,1; got {text!r}"
        ) from None
    return name, partitions


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


# -- where resets move offsets to --------------------------------------------------------------------------------------


def reset_of(args: argparse.Namespace, mapper: RefMapper, now: float) -> ResetCommand:
    """Return the reset that `args` ask for; `now` is Unix time.

    Raises:
        ConfigError: options are missing, or do not fit together, or the file's lines cannot be used.
        UnknownRefError: the mapper does not know the reference of --ref.
    """
    topic, some = args.topic or (None, None)
    if some is not None and args.partitions is not None:
        raise ConfigError("--partitions does not go with --topic NAME:P,P: give the partitions once")
    partitions = args.partitions if some is None else tuple(sorted(some))
    if args.ref is not None:
        if args.group is not None:
            raise ConfigError("--ref does not go with --group: give one of the two")
        ref: Ref = args.ref
        if topic is not None and ref.kind == "Channel" and "/" not in ref.name:
            ref = Ref(kind=ref.kind, name=f"{ref.name}/{topic}")
        info = mapper.map(ref)
        if topic not in (None, info.topic):
            raise ConfigError(f"--topic {topic}: {ref} is of topic {info.topic}; leave --topic out")
        spec = _spec(args, info.group, info.topic, partitions, now)[1]
    elif args.group is None:
        raise ConfigError("whose offsets? give --group and --topic, or --ref, or -f with a manifest")
    elif topic is None and args.from_file is None:
        raise ConfigError("--group needs --topic: name the topic whose offsets to move")
    else:
        topic, spec = _spec(args, args.group, topic, partitions, now)
        ref, info = Ref(kind="Group", name=f"{args.group}/{topic}"), RefInfo(topic=topic, group=args.group)
    return ResetCommand(
        name=new_name(now),
        ref=ref,
        info=info,
        spec=spec,
        created=now,
        by=user_here(),
        force_after=args.force_after,
    )


def _spec(
    args: argparse.Namespace, group: str, topic: str | None, partitions: tuple[int, ...] | None, now: float
) -> tuple[str, ResetSpec]:
    """Return the topic, which a file may name, and the target."""
    if args.from_file is not None:
        name, offsets = _from_file(args.from_file, group, topic)
        return name, ResetSpec(to=To.OFFSETS, offsets=offsets, partitions=partitions)
    assert topic is not None
    if args.to_earliest:
        return topic, ResetSpec(to=To.EARLIEST, partitions=partitions)
    if args.to_latest:
        return topic, ResetSpec(to=To.LATEST, partitions=partitions)
    if args.to_datetime is not None:
        return topic, ResetSpec(to=To.TIME, time=args.to_datetime, partitions=partitions)
    if args.by_duration is not None:
        return topic, ResetSpec(to=To.TIME, time=now - args.by_duration, partitions=partitions)
    if args.shift_by is not None:
        return topic, ResetSpec(to=To.SHIFT, shift=args.shift_by, partitions=partitions)
    if args.to_offset is not None:
        return topic, ResetSpec(to=To.OFFSET, offset=args.to_offset, partitions=partitions)
    raise ConfigError(
        "where to? give one of --to-earliest, --to-latest, --to-datetime, --by-duration, --shift-by, --to-offset, --from-file"
    )


def _from_file(path: str, group: str, topic: str | None) -> tuple[str, dict[int, int]]:
    """Return the topic, and its offsets in a CSV."""
    name = "standard input" if path == "-" else path
    lines = read_csv(sys.stdin.read() if path == "-" else read_text(Path(path), "--from-file"), name, group)
    topics = sorted({line.topic for line in lines})
    if topic is None and len(topics) > 1:
        raise ConfigError(f"{name}: has offsets of {', '.join(topics)}; choose one with --topic")
    wanted = topic or topics[0]
    if wanted not in topics:
        raise ConfigError(f"{name}: has no offsets of topic {wanted}, only of {', '.join(topics)}")
    return wanted, {line.partition: line.offset for line in lines if line.topic == wanted}


# -- single values -----------------------------------------------------------------------------------------------------


def ref_of(text: str) -> Ref:
    """Return the reference of `channel/orders` or `subscription/shop/billing`."""
    kind, slash, rest = text.partition("/")
    kind = _KINDS.get(kind.lower(), kind)
    if not kind or not slash or not all(rest.split("/")):
        raise argparse.ArgumentTypeError(f"need a kind and a name, such as channel/orders, got {text!r}")
    if kind == "Channel":  # what follows another slash is a topic
        return Ref(kind=kind, name=rest)
    namespace, _, name = rest.rpartition("/")
    return Ref(kind=kind, name=name, namespace=namespace or None)


def _whole(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise argparse.ArgumentTypeError(f"need a whole number such as -100, got {text!r}")
    return int(text)


def _duration(text: str) -> float:
    return parse_iso_duration(text) if text.startswith("P") else parse_duration(text)


GROUPS = several(
    "--group", "a group, may be given several times; default: the groups of the configuration", metavar="NAME"
)
ALL_GROUPS = flag("--all-groups", "every group that ZooKeeper has")
TOPICS = several(
    "--topic",
    "a topic, or some of its partitions (orders:0,1), may be given several times; default: all",
    type=topic_of,
    metavar="NAME[:P,P...]",
)
TARGET = (
    argument("--group", metavar="NAME", help="the group whose offsets to move; goes with --topic or --from-file"),
    argument(
        "--topic",
        type=topic_of,
        metavar="NAME[:P,P...]",
        help="the topic, or some of its partitions (orders:0,1)",
    ),
    argument(
        "--ref",
        type=ref_of,
        metavar="KIND/NAME",
        help="instead of --group: channel/orders, subscription/UID of the configuration, or subscription/NAMESPACE/NAME of its "
        "manifests; see reset.ref_mapper",
    ),
    PARTITIONS,
    one_of(
        flag("--to-earliest", "to the beginning of the log"),
        flag("--to-latest", "to the end of the log"),
        argument(
            "--to-datetime",
            type=parsed(parse_time),
            metavar="TIME",
            help="to the first record of that time or later, such as 2026-01-31T02:40:00Z",
        ),
        argument(
            "--by-duration",
            type=parsed(_duration),
            metavar="PnDTnHnMnS",
            help="to the first record that is not older, such as PT2H30M or 2h",
        ),
        argument("--shift-by", type=_whole, metavar="N", help="N records forward, or back (--shift-by=-100)"),
        argument("--to-offset", type=offset_number, metavar="N", help="to this offset"),
        argument(
            "--from-file", metavar="CSV", help="to the offsets of a file: topic,partition,offset; - is standard input"
        ),
    ),
)
