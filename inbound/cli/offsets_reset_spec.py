"""What the options of `inbound offsets reset` ask for: whose offsets, and where to."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbound.cli.argument_types import offset_number, parsed, partition_numbers
from inbound.cli.offsets_options import topic_of
from inbound.config import parse_duration, parse_time, read_text
from inbound.controller.reset_offset import Ref, RefInfo, RefMapper, ResetSpec, To
from inbound.errors import ConfigError
from inbound.offsets.csv_file import read_csv
from inbound.processors.dispatch.iso_duration import parse_iso_duration

#: Kinds of references as they are written in one word; others stay as they are, for mappers of one's own.
_KINDS = {kind.lower(): kind for kind in ("Channel", "KafkaChannel", "Subscription")}


@dataclass(frozen=True)
class Asked:
    """What one reset is about."""

    ref: Ref
    info: RefInfo
    spec: ResetSpec


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whose offsets are moved, and where to."""
    parser.add_argument("--group", metavar="NAME", help="whose offsets; with --topic")
    parser.add_argument(
        "--topic",
        type=topic_of,
        metavar="NAME[:P,P...]",
        help="of which topic, and of which of its partitions (orders:0,1)",
    )
    parser.add_argument(
        "--ref",
        type=ref_of,
        metavar="KIND/NAME",
        help="instead of --group: channel/orders, subscription/UID of the configuration, or subscription/NAMESPACE/NAME of its "
        "manifests; see reset.ref_mapper",
    )
    parser.add_argument(
        "--partitions", type=partition_numbers, metavar="0,3-5", help="only these; default: all that the topic has"
    )
    to: Any = parser.add_mutually_exclusive_group()
    to.add_argument("--to-earliest", action="store_true", help="to the beginning of the log")
    to.add_argument("--to-latest", action="store_true", help="to the end of the log")
    to.add_argument(
        "--to-datetime",
        type=parsed(parse_time),
        metavar="TIME",
        help="to the first record of that time or later, such as 2026-01-31T02:40:00Z",
    )
    to.add_argument(
        "--by-duration",
        type=parsed(_duration),
        metavar="PnDTnHnMnS",
        help="to the first record that is not older, such as PT2H30M or 2h",
    )
    to.add_argument("--shift-by", type=_whole, metavar="N", help="so many records on, or back (--shift-by=-100)")
    to.add_argument("--to-offset", type=offset_number, metavar="N", help="to this offset")
    to.add_argument(
        "--from-file", metavar="CSV", help="to the offsets of a file: topic,partition,offset; - is standard input"
    )


def asked(args: argparse.Namespace, mapper: RefMapper, now: float) -> Asked:
    """Return what `args` ask for; `now` is in seconds since 1970.

    Raises:
        ConfigError: options are missing, or do not fit together, or the file's lines cannot be used.
        UnknownRefError: what --ref names is not known.
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
        return Asked(ref, info, _spec(args, info.group, info.topic, partitions, now)[1])
    if args.group is None:
        raise ConfigError("whose offsets? give --group and --topic, or --ref, or -f with a manifest")
    if topic is None and args.from_file is None:
        raise ConfigError("--group needs --topic: name the topic whose offsets are to be moved")
    topic, spec = _spec(args, args.group, topic, partitions, now)
    return Asked(Ref(kind="Group", name=f"{args.group}/{topic}"), RefInfo(topic=topic, group=args.group), spec)


def _spec(
    args: argparse.Namespace, group: str, topic: str | None, partitions: tuple[int, ...] | None, now: float
) -> tuple[str, ResetSpec]:
    """Return the topic, which a file may name, and where to."""
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
    """Return topic and offsets of a CSV; lines of other topics than `topic` are left out."""
    name = "standard input" if path == "-" else path
    lines = read_csv(sys.stdin.read() if path == "-" else read_text(Path(path)), name, group)
    topics = sorted({line.topic for line in lines})
    if topic is None and len(topics) > 1:
        raise ConfigError(f"{name}: has offsets of {', '.join(topics)}; say with --topic which are meant")
    wanted = topic or topics[0]
    if wanted not in topics:
        raise ConfigError(f"{name}: has no offsets of topic {wanted}, only of {', '.join(topics)}")
    return wanted, {line.partition: line.offset for line in lines if line.topic == wanted}


# -- single values -----------------------------------------------------------------------------------------------------


def ref_of(text: str) -> Ref:
    """Return what `channel/orders` or `subscription/shop/billing` names."""
    kind, slash, rest = text.partition("/")
    kind = _KINDS.get(kind.lower(), kind)
    if not kind or not slash or not all(rest.split("/")):
        raise argparse.ArgumentTypeError(f"need a kind and a name, such as channel/orders, got {text!r}")
    if kind == "Channel":  # what comes after a slash there is a topic
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
