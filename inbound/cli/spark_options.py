"""What all Spark commands take: the configuration, the master, Spark's own settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from inbound.cli import places
from inbound.cli.files import add_config_options
from inbound.errors import ConfigError
from inbound.kafka.access import contents, read, resolve
from inbound.spark.kafka_source import for_java
from inbound.spark.pem import inline
from inbound.spark.session import SparkSettings


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Add what every job takes: the configuration, the master, Spark's own settings."""
    add_config_options(parser)
    parser.add_argument(
        "--master", default="local[*]", help="Spark master; default: local[*], all cores of this machine"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    parser.add_argument(
        "--wheel",
        type=Path,
        metavar="FILE",
        help="the wheel of inbound that executors on other machines get; default: one of what runs here",
    )
    parser.add_argument(
        "--py-files",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a .py, .zip or .whl that executors on other machines need besides; may be given several times",
    )


def spark_settings(args: argparse.Namespace) -> SparkSettings:
    """Return how to get a session.

    Raises:
        ConfigError: a --conf is not KEY=VALUE, or a file that is named is not there.
    """
    conf = dict(_pair(item) for item in args.conf)
    for option, path in (("--wheel", args.wheel), *(("--py-files", path) for path in args.py_files)):
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: there is no such file")
    return SparkSettings(places.jar_cache(), places.java_command(), args.master, conf, args.wheel, tuple(args.py_files))


def kafka_for_spark(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration's Kafka properties for executors, which have none of this machine's files.

    Raises:
        ConfigError: a file of certificates or keys can't be read, or Java could not use it.
    """
    contents(properties)  # what cannot be read is said by the name of the property
    resolved = resolve(properties)
    for_java(resolved)
    return inline(resolved, lambda path: read("ssl", Path(path)))


def _pair(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"--conf {item}: need KEY=VALUE, such as spark.executor.memory=2g")
    return key, value
