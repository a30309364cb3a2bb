"""`inbound explain`: why one partition stands still, or what it does."""

from __future__ import annotations

import argparse
import json
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from inbound.cli.argument_types import whole
from inbound.cli.explain_text import shown
from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.status import add_address_options, admin_address
from inbound.cli.tls_options import client_tls
from inbound.cli.zookeeper import with_zookeeper
from inbound.config import ChannelConfig, Loaded, parse_duration
from inbound.errors import BrokerUnavailableError, ConfigError, InboundError
from inbound.explain.answer import explanation_json
from inbound.explain.cause import BENIGN, Cause, Explanation
from inbound.explain.outside import Log, Nodes, explain_outside, read_nodes
from inbound.explain.recorded import recorded
from inbound.http.explain_client import fetch_explanations
from inbound.kafka.clients import connector
from inbound.topic_names import chooser
from inbound.topic_partition import TopicPartition

#: Exit codes besides those of every command: it stands still, and nobody wants it so.
STANDS_STILL = 3
#: How long a process may take to answer, and Kafka. Seconds.
PROCESS_TIMEOUT, KAFKA_TIMEOUT = 2.0, 5.0


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "explain",
        help="say why a partition stands still",
        description="Ask ZooKeeper who owns the partition, the owner what it waits for, and if nobody answers say what ZooKeeper "
        "and Kafka know. Exit code 0: it moves, has nothing to read, or somebody wants it to rest; 3: it stands still and should "
        "not; 1: nobody could tell; 2: the question or the configuration is wrong.",
        **examples(
            "inbound explain orders 3",
            "inbound explain orders 3 --at 02:40",
            "inbound explain orders 3 --at 10m --json",
        ),
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("partition", metavar="PARTITION", type=whole(0, 10**18 - 1, "the number of a partition"))
    add_config_options(parser)
    parser.add_argument(
        "--at",
        type=_time,
        metavar="TIME",
        help="what was then: 2026-01-31T02:40:00, 02:40 (the last time it was that late), or 10m (so long ago)",
    )
    parser.add_argument(
        "--channel", metavar="NAME", help="of this channel only; default: of every channel that reads the topic"
    )
    add_address_options(parser, "ask the process there too, may be given several times")
    parser.add_argument("--json", action="store_true", help="print everything that was found, as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain the partition for each channel that reads it. Returns the exit code."""
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
    return STANDS_STILL if any(Cause(one["cause"]) not in BENIGN for one in found) else 0


def explained(
    loaded: Loaded,
    tp: TopicPartition,
    channel: str,
    config: ChannelConfig,
    at: float | None,
    urls: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Return all that could be found out about a partition in one group, as JSON takes it.

    `cause` is None where nobody could tell. What did not answer is in `problems`.
    """
    problems: list[str] = []
    result: dict[str, Any] = {
        "topic": tp.topic, "partition": tp.partition, "channel": channel, "group": config.group, "at": at,
        "asked_at": time.time(), "cause": None, "since": None, "text": "", "todo": "", "evidence": [], "problems": problems,
    }  # fmt: skip
    nodes = _nodes(loaded, tp, channel, config, problems)
    answers = _ask(tp, config.group, nodes, [*urls, *_own_address(loaded, nodes)], at, problems, tls)
    if at is not None:
        return result | _at(loaded, tp, config.group, at, answers, nodes)
    holder = next((one for one in answers if one["held"] and (nodes is None or one["consumer"] == nodes.owner)), None)
    holder = holder or next((one for one in answers if one["held"]), None)
    log = _log(loaded, tp, config) if holder is None or nodes is None else Log()
    result |= {
        "zookeeper": None if nodes is None else nodes.as_dict(),
        "kafka": log.as_dict() if holder is None else None,
    }
    answer = holder or next(iter(answers), None)
    if answer is not None:
        kept = ("consumer", "held", "claimed", "numbers", "events", "notices", "share")
        result["owner"] = {name: answer[name] for name in kept if name in answer}
    outside = None
    if nodes is not None:
        silent = None if holder is not None else (problems[-1] if problems else "it does not hold it, by its own word")
        told = next((one["bad_node"] for one in answers if one.get("bad_node")), None)  # of no earlier release
        nodes = replace(nodes, bad_node=told or nodes.bad_node)
        outside = explain_outside(nodes, log, time.time(), silent)
    if outside is not None and (holder is None or outside.cause in (Cause.RESET, Cause.BAD_NODE)):
        since = nodes.owner_since if nodes is not None and outside.cause is Cause.OWNER_SILENT else None
        return result | explanation_json(
            outside, time.time() - outside.lasting if outside.lasting is not None else since
        )
    if holder is not None:
        result |= holder["explanation"]
        return result
    if nodes is None:
        return result | explanation_json(_nobody(problems), None)
    return result


def _nobody(problems: Sequence[str]) -> Explanation:
    return Explanation(
        Cause.SESSION_SUSPENDED,
        f"ZooKeeper does not answer, and no process that could be asked holds it: {problems[0]}",
        "bring ZooKeeper back; without it nothing is handed out or committed. --url asks a process whose address is known",
    )


# -- whom to ask -----------------------------------------------------------------------------------------------------


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


def _own_address(loaded: Loaded, nodes: Nodes | None) -> list[str]:
    """Where a process of this configuration may listen, where ZooKeeper cannot tell."""
    if nodes is not None or loaded.config.admin.port == 0:
        return []
    return [admin_address(loaded.config.admin)]


def _ask(
    tp: TopicPartition,
    group: str,
    nodes: Nodes | None,
    urls: Sequence[str],
    at: float | None,
    problems: list[str],
    tls: ssl.SSLContext | None,
) -> list[dict[str, Any]]:
    """Ask the owner; for what was, and where nobody owns it, all members: whoever had it knows why it has not."""
    asked = list(urls)
    if nodes is not None:
        infos = dict(nodes.infos)
        everybody = nodes.owner not in infos or at is not None
        asked += [info.admin for name, info in nodes.infos if info.admin and (everybody or name == nodes.owner)]
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


def _log(loaded: Loaded, tp: TopicPartition, config: ChannelConfig) -> Log:
    try:
        client = connector(
            config.reader, loaded.config.kafka, client_id="inbound-explain", isolation=config.isolation
        )()  # fmt: skip
    except BrokerUnavailableError as error:
        return Log(problem=str(error))
    try:
        meta = client.topics([tp.topic], None).get(tp.topic)
        if meta is None or tp.partition >= meta.partitions:
            return Log(partitions=0 if meta is None else meta.partitions)
        deadline = time.monotonic() + KAFKA_TIMEOUT
        while time.monotonic() < deadline:
            limits = client.log_ranges([tp]).get(tp)
            if limits is not None:
                return Log(partitions=meta.partitions, start=limits.start, end=limits.end)
            time.sleep(0.05)
        return Log(partitions=meta.partitions, problem=f"its leader has not answered within {KAFKA_TIMEOUT:g} s")
    except BrokerUnavailableError as error:
        return Log(problem=str(error))
    finally:
        client.close()


# -- what was --------------------------------------------------------------------------------------------------------


def _at(
    loaded: Loaded,
    tp: TopicPartition,
    group: str,
    at: float,
    answers: Sequence[Mapping[str, Any]],
    nodes: Nodes | None,
) -> dict[str, Any]:
    """Return what was at a time: by the word of who held it then, else by the ledger of this machine."""
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
        return result | {
            "text": f"none of those that answer held it then; {elsewhere['consumer']}: {elsewhere['text']}"
        }
    return result | {"text": "nobody that answers remembers so far back, and there is no ledger here that does"}


# -- arguments -------------------------------------------------------------------------------------------------------


def _channels(
    channels: Mapping[str, ChannelConfig], tp: TopicPartition, wanted: str | None
) -> dict[str, ChannelConfig]:
    if wanted is not None and wanted not in channels:
        raise ConfigError(f"no channel {wanted!r} in this configuration; there are: {', '.join(channels)}")

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
        raise argparse.ArgumentTypeError(f"{text} is still to come")
    return at
