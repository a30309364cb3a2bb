"""Which processor a replay runs, with what options: the channel's, or what flags say instead."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.config import ChannelConfig, Loaded, OnErrorConfig
from inbound.errors import ConfigError
from inbound.planning import PlannedChannel, plan_channels
from inbound.plugins import find_processor, options_of
from inbound.processors.base import BatchEventProcessor


def add_channel_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which processor, and how."""
    parser.add_argument("--channel", required=True, metavar="NAME", help="the channel of the configuration")
    parser.add_argument(
        "--processor", metavar="TYPE", help="another processor than the channel's, such as module:Class"
    )
    parser.add_argument("--options", metavar="JSON", help="other options than the channel's, all of them")
    parser.add_argument("--dead-letters", metavar="TOPIC", help="another topic than the channel's dead_letter_topic")
    parser.add_argument(
        "--shadow",
        type=Path,
        metavar="FOLDER",
        help="instead of sending anything, write what the sinks would get there",
    )


def channel_of(args: argparse.Namespace, loaded: Loaded) -> PlannedChannel:
    """Return the channel with the processor and the options that this replay is to use.

    Raises:
        ConfigError: there is no such channel, or the processor or its options cannot be used.
    """
    planned = plan_channels(loaded)
    if args.channel not in planned:
        raise ConfigError(f"--channel {args.channel}: there is no such channel; there are {', '.join(sorted(planned))}")
    channel = planned[args.channel]
    cls, config = channel.processor, channel.config
    kind, written = config.processor.type, dict(config.processor.options)
    if args.processor is not None:
        try:
            cls = find_processor(args.processor).cls
        except ConfigError as error:
            raise ConfigError(f"--processor {args.processor}: {error}") from None
        kind = args.processor
    if args.options is not None:
        written = _json_object(args.options)
    if args.shadow is not None:
        written = _captured(cls, kind, written, args.shadow)
    options = channel.options
    if (args.processor, args.options, args.shadow) != (None, None, None):
        try:
            options = options_of(cls, written, "options", loaded)
        except ConfigError as error:
            raise ConfigError(f"--processor {kind}: {error}") from None
    given = config.processor.model_copy(update={"type": kind, "options": written})
    config = config.model_copy(update={"processor": given, "on_error": _on_error(args, config)})
    return replace(channel, config=config, processor=cls, options=options)


def _captured(cls: type[BatchEventProcessor], kind: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    fields = getattr(cls.Options, "model_fields", {})
    if "sinks" not in fields:
        raise ConfigError(
            f"--shadow: processor {kind} has no option `sinks`, so where it sends to cannot be replaced; leave --shadow out, or "
            "give its own options for a trial by --options"
        )
    sink = {"type": "inbound.spark.replay.capture:CaptureSink", "folder": str(folder.absolute())}
    return {**options, "sinks": [sink]}


def _on_error(args: argparse.Namespace, config: ChannelConfig) -> OnErrorConfig:
    if args.dead_letters is None:
        return config.on_error
    if config.on_error.then != "dead-letter":
        setting = f"channels.{args.channel}.on_error.then"
        raise ConfigError(
            f"--dead-letters {args.dead_letters}: {setting} is {config.on_error.then}, so nothing is sent there; "
            f"add --set {setting}=dead-letter"
        )
    return config.on_error.model_copy(update={"dead_letter_topic": args.dead_letters})


def digest_of(options: Mapping[str, Any]) -> str:
    """Return what tells options from others and gives no secret away."""
    return hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--options: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"--options: need a JSON object, got {type(value).__name__}")
    return value
