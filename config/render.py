"""The effective configuration as YAML that loads again, with its units back and its secrets hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from inbound.config.document import dotted
from inbound.config.models import Config
from inbound.config.schema import in_options
from inbound.config.secrets import HIDDEN, is_secret_option, is_secret_property


def render(config: Config, origins: Mapping[str, str] | None = None) -> str:
    """Return `config` as YAML, defaults included. With `origins` each value is followed by where it comes from."""
    tree = config.model_dump(mode="json")
    for name, channel in config.channels.items():
        for plugin in ("processor", "coordinator"):
            if (options := getattr(getattr(channel, plugin), "options", None)) is not None:
                # As they were read: not every text that YAML can hold comes through JSON unchanged.
                tree["channels"][name][plugin]["options"] = options
    return "\n".join(_lines(tree, (), origins)) + "\n"


def _lines(tree: Mapping[str, Any], path: tuple[str, ...], origins: Mapping[str, str] | None) -> Iterator[str]:
    indent = "  " * len(path)
    for key, value in tree.items():
        here = (*path, key)
        if here[-1] in ("topics", "topics_pattern") and here[0] == "channels" and len(here) == 3 and not value:
            continue  # the one of the two that was not given, and must not be
        name = f"{indent}{_flow(key)}:"
        if isinstance(value, Mapping) and value:
            yield name
            yield from _lines(value, here, origins)
            continue
        origin = f"  # {origins.get(dotted(*here), 'default')}" if origins is not None else ""
        yield f"{name} {_flow(_hidden(here, value))}{origin}"


def _hidden(path: tuple[str, ...], value: Any) -> Any:
    if path[0] != "kafka" and not in_options(path):
        return value
    is_secret = is_secret_property if path[0] == "kafka" else is_secret_option
    if value is not None and is_secret(path[-1]):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _hidden((*path, str(key)), part) for key, part in value.items()}
    return [_hidden(path, part) for part in value] if isinstance(value, list) else value


def _flow(value: Any) -> str:
    """Return a scalar or list on one line."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, default_style=style
    )
    return text.removesuffix("\n").removesuffix("\n...")
