"""`inbound explain`: why one partition is stalled, or its present state."""

from __future__ import annotations

import argparse
import json
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from inbound.admin.client import fetch_explanations
from inbound.cli.inspect.explain_text import shown
from inbound.cli.shared.admin_port import TLS, admin_address, admin_url, client_tls
from inbound.cli.shared.command import CONFIG, Command, argument, check_channel, flag, several, whole
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.config import ChannelConfig, Loaded, parse_duration
from inbound.errors import BrokerUnavailableError, ConfigError, InboundError
from inbound.kafka.clients.choice import connector
from inbound.observe.explain.answer import explanation_json
from inbound.observe.explain.facts import BENIGN, Cause, Explanation
from inbound.observe.explain.history import recorded
from inbound.observe.explain.outside import Nodes, PartitionLog, explain_outside, read_nodes
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition

#: Exit code: the partition is stalled.
STALLED = 3
#: How long a process may take to answer, and Kafka. Seconds.
PROCESS_TIMEOUT, KAFKA_TIMEOUT = 2.0, 5.0


def run(args: argparse.Namespace) -> int:
    """Explain the partition for each channel. Returns the exit code."""
    loaded = load_config(args)
    tp = TopicPartition(args.topic, args.partition)
    channels = _channels(known_channels(loaded), tp, args.channel)
    tls = client_tls(args)
    found = [explained(loaded, tp, name, config, args.at, args.url, tls) for name, config in channels.items()]
    if args.json:
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    else:
        print("\n\n".join(shown(one, time.time()) for one in found))
    if any(one["cause"] is None for one in found):
        return 1
    return STALLED if any(Cause(one["cause"]) not in BENIGN for one in found) else 0


def explained(
    loaded: Loaded,
    tp: TopicPartition,
    channel: str,
    config: ChannelConfig,
    at: float | None,
    urls: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Return everything known about a partition in one group, for JSON.

    `cause` is None if no process and no server knows it. `problems` names those that did not answer.
    """
    problems: list[str] = []
    result: dict[str, Any] = {
        "topic": tp.topic, "partition": tp.partition, "channel": channel, "group": config.group, "at": at,
        "asked_at": time.time(), "cause": None, "since": None, "text": "", "todo": "", "evidence": [], "problems": problems,
    }  # fmt: skip
    nodes = _nodes(loaded, tp, channel, config, problems)
    # A process of this configuration may listen there, if ZooKeeper does not answer.
    own = [] if nodes is not None or loaded.config.admin.port == 0 else [admin_address(loaded.config.admin)]
    answers = _ask(tp, config.group, nodes, [*urls, *own], at, problems, tls)
    if at is not None:
        return result | _at(loaded, tp, config.group, at, answers, nodes)
    holder = next((one for one in answers if one["held"] and (nodes is None or one["consumer"] == nodes.owner)), None)
    holder = holder or next((one for one in answers if one["held"]), None)
    log = _log(loaded, tp, config) if holder is None or nodes is None else PartitionLog()
    result |= {
        "zookeeper": None if nodes is None else nodes.as_dict(),
        "kafka": asdict(log) if holder is None else None,
    }
    answer = holder or next(iter(answers), None)
    if answer is not None:
        kept = ("consumer", "held", "claimed", "numbers", "events", "notices", "share")
        result["owner"] = {name: answer[name] for name in kept if name in answer}
    outside = None
    if nodes is not None:
        silent = (
            None
            if holder is not None
            else (problems[-1] if problems else "it answers that it does not hold the partition")
        )
        told = next((one["bad_node"] for one in answers if one.get("bad_node")), None)  # of no earlier release
        nodes = replace(nodes, bad_node=told or nodes.bad_node)
        outside = explain_outside(nodes, log, time.time(), silent)
    if outside is not None and (holder is None or outside.cause in (Cause.RESET, Cause.BAD_NODE)):
        since = nodes.owner_since if nodes is not None and outside.cause is Cause.OWNER_SILENT else None
        return result | explanation_json(
            outside, time.time() - outside.lasting if outside.lasting is not None else since
        )
    if holder is not None:
        return {**result, **holder["explanation"]}
    if nodes is not None:
        return result
    explanation = Explanation(
        Cause.SESSION_SUSPENDED,
        f"ZooKeeper does not answer, and no process that answers holds the partition: {problems[0]}",
        "bring ZooKeeper back; without it nothing is delivered or committed. --url asks a process whose address is known",
    )
    return result | explanation_json(explanation, None)


# -- questions -----------------------------------------------------------------------------------------------------


def _nodes(
    loaded: Loaded, tp: TopicPartition, channel: str, config: ChannelConfig, problems: list[str]
) -> Nodes | None:
    try:
        return with_zookeeper(loaded.config.zookeeper, lambda zk: read_nodes(zk, tp, config.group, channel))
    except ConfigError:
        raise
    except InboundError as error:
        problems.append(str(error))
        return None


def _ask(
    tp: TopicPartition,
    group: str,
    nodes: Nodes | None,
    urls: Sequence[str],
    at: float | None,
    problems: list[str],
    tls: ssl.SSLContext | None,
) -> list[dict[str, Any]]:
    """Return the owner's answers, or those of all members.

    All members are asked about the past, and about a partition without an owner: previous owners know why they lost it.
    """
    asked = list(urls)
    if nodes is not None:
        everybody = nodes.owner not in nodes.infos or at is not None
        asked += [info.admin for name, info in nodes.infos.items() if info.admin and (everybody or name == nodes.owner)]
    unique = list(dict.fromkeys(asked))
    if not unique:
        return []

    def ask(url: str) -> list[dict[str, Any]] | str:
        try:
            return fetch_explanations(url, tp, at, timeout=PROCESS_TIMEOUT, tls=tls)
        except InboundError as error:
            return str(error)

    with ThreadPoolExecutor(min(16, len(unique))) as pool:
        said = list(pool.map(ask, unique))
    problems.extend(one for one in said if isinstance(one, str))
    return [answer for one in said if not isinstance(one, str) for answer in one if answer["group"] == group]


def _log(loaded: Loaded, tp: TopicPartition, config: ChannelConfig) -> PartitionLog:
    try:
        connect = connector(config.reader, loaded.config.kafka, client_id="inbound-explain", isolation=config.isolation)
        with closing(connect()) as client:
            meta = client.topics([tp.topic], None).get(tp.topic)
            if meta is None or tp.partition >= meta.partitions:
                return PartitionLog(partitions=0 if meta is None else meta.partitions)
            deadline = time.monotonic() + KAFKA_TIMEOUT
            while time.monotonic() < deadline:
                limits = client.log_ranges([tp]).get(tp)
                if limits is not None:
                    return PartitionLog(partitions=meta.partitions, start=limits.start, end=limits.end)
                time.sleep(0.05)
            return PartitionLog(
                partitions=meta.partitions, problem=f"its leader has not answered within {KAFKA_TIMEOUT:g} s"
            )
    except BrokerUnavailableError as error:
        return PartitionLog(problem=str(error))


# -- the past --------------------------------------------------------------------------------------------------------


def _at(
    loaded: Loaded,
    tp: TopicPartition,
    group: str,
    at: float,
    answers: Sequence[Mapping[str, Any]],
    nodes: Nodes | None,
) -> dict[str, Any]:
    """Return the state at a time, from its owner or the ledger."""
    then = next((one for one in answers if one.get("known") and one["was_held"]), None)
    seen = recorded(loaded.config.ledger, group, tp, at)
    result: dict[str, Any] = {
        "zookeeper": None if nodes is None else nodes.as_dict(),
        "ledger": None if seen is None else seen.as_dict(),
    }
    if then is not None:
        owner = {name: then[name] for name in ("consumer", "before", "after", "oldest")}
        return result | {name: then[name] for name in ("cause", "since", "text")} | {"owner": owner}
    if seen is not None:
        return result | {"cause": seen.cause, "since": seen.since, "text": seen.text}
    elsewhere = next((one for one in answers if one.get("known")), None)
    if elsewhere is not None:
        return result | {"text": f"no process that answers held it then; {elsewhere['consumer']}: {elsewhere['text']}"}
    return result | {"text": "no process that answers remembers that time, and no ledger on this machine covers it"}


# -- arguments -------------------------------------------------------------------------------------------------------


def _channels(
    channels: Mapping[str, ChannelConfig], tp: TopicPartition, wanted: str | None
) -> dict[str, ChannelConfig]:
    if wanted is not None:
        check_channel(wanted, channels)

    def reads(config: ChannelConfig) -> bool:
        return chooser(config.topics, config.topics_pattern)(tp.topic)

    found = {name: config for name, config in channels.items() if wanted in (None, name) and reads(config)}
    if not found:
        topics = sorted({topic for config in channels.values() for topic in config.topics})
        raise ConfigError(
            f"no channel of this configuration reads topic {tp.topic}; they read: {', '.join(topics) or '-'}"
        )
    groups: dict[str, str] = {}
    return {name: config for name, config in found.items() if groups.setdefault(config.group, name) == name}


def _time(text: str) -> float:
    now = datetime.now().astimezone()
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            hour, minute, *second = map(int, text.split(":"))
            found = now.replace(hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0)
            return (found if found <= now else found - timedelta(days=1)).timestamp()
        if re.fullmatch(r"\d+(\.\d+)?[a-z]+", text):
            return now.timestamp() - parse_duration(text)
        given = datetime.fromisoformat(text)
    except (ValueError, ConfigError):
        raise argparse.ArgumentTypeError(
            f"need a time such as 2026-01-31T02:40:00, 02:40, or 10m for ten minutes ago, got {text!r}"
        ) from None
    at = (given if given.tzinfo is not None else given.astimezone()).timestamp()
    if at > now.timestamp():
        raise argparse.ArgumentTypeError(f"{text} is in the future")
    return at


COMMAND = Command(
    "explain",
    "show why a partition is stalled",
    run,
    "Ask ZooKeeper for the owner of the partition, and the owner for its state; if no process answers, report what ZooKeeper "
    "and Kafka know. Exit code 0: it moves, has nothing to read, or was paused or delayed on purpose; 3: it is stalled; 1: no "
    "process and no server knows; 2: the question or the configuration is wrong.",
    examples=(
        "inbound explain orders 3",
        "inbound explain orders 3 --at 02:40",
        "inbound explain orders 3 --at 10m --json",
    ),
    arguments=(
        argument("topic", metavar="TOPIC"),
        argument("partition", metavar="PARTITION", type=whole(0, 10**18 - 1, "the number of a partition")),
        *CONFIG,
        argument(
            "--at",
            type=_time,
            metavar="TIME",
            help="the state at that time: 2026-01-31T02:40:00, 02:40 (the last one), or 10m (ten minutes ago)",
        ),
        argument(
            "--channel", metavar="NAME", help="of this channel only; default: of every channel that reads the topic"
        ),
        several(
            "--url",
            "also ask the process there; may be given several times",
            type=admin_url,
            metavar="http://HOST:PORT",
        ),
        TLS,
        flag("--json", "print everything that was found, as JSON"),
    ),
)
