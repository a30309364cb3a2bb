"""Writes the effective configuration as YAML, with units, without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr

from inbound.config.document import dotted
from inbound.config.models import Config, ManifestsConfig
from inbound.config.schema import in_options
from inbound.config.secrets import HIDDEN, is_secret_option, is_secret_property, without_credentials

#: Origins stand in one column, at most this far right; the origin of a longer value follows it.
_COLUMN = 60


def render(
    config: Config, origins: Mapping[str, str] | None = None, options: Mapping[str, object] | None = None
) -> str:
    """Return `config` as YAML, with its defaults.

    With `origins`, each value's origin follows it. `options` are the models of plugins' options, by dotted path: with them
    the defaults of these are shown too.
    """
    tree = config.model_dump(mode="json")
    if config.manifests == ManifestsConfig():
        del tree["manifests"]
    elif config.manifests.options:
        tree["manifests"]["options"] = config.manifests.options
    if not config.channels:
        del tree["channels"]
    for name, channel in config.channels.items():
        for subscription, written in channel.subscriptions.items():
            model = (options or {}).get(f"channels.{name}.subscriptions.{subscription}")
            tree["channels"][name]["subscriptions"][subscription] = _filled(written, model)
        for plugin in ("processor", "coordinator"):
            if (given := getattr(getattr(channel, plugin), "options", None)) is not None:
                filled = (options or {}).get(f"channels.{name}.{plugin}.options")
                # As read: JSON changes some texts that YAML can hold.
                tree["channels"][name][plugin]["options"] = _filled(given, filled)
    lines = list(_lines(tree, (), origins or {}))
    if origins is None:
        return "".join(f"{text}\n" for text, _ in lines)
    width = max((len(text) for text, origin in lines if origin and len(text) <= _COLUMN), default=0)
    return "".join(f"{text:{width}}  # {origin}\n" if origin else f"{text}\n" for text, origin in lines)


def _filled(given: Mapping[str, Any], model: object) -> Mapping[str, Any]:
    """Return the given options, then the model's defaults for the others."""
    if not isinstance(model, BaseModel):
        return given
    fields = {field.alias or name: getattr(model, name) for name, field in type(model).model_fields.items()}
    dumped = model.model_dump(mode="json", by_alias=True, fallback=str, warnings=False)
    result = {key: _shown(value, fields.get(key)) for key, value in given.items()}
    left_out = {*given, *getattr(model, "without_default", ())}
    return result | {key: _shown(dumped.get(key), fields[key]) for key in fields if key not in left_out}


def _shown(value: Any, held: object) -> Any:
    """Return `value`, hidden where the model's value `held` is a secret."""
    if isinstance(held, (SecretStr, SecretBytes)):
        return HIDDEN
    if isinstance(value, list) and isinstance(held, (list, tuple)) and len(value) == len(held):
        return [_shown(*pair) for pair in zip(value, held, strict=True)]
    return _filled(value, held) if isinstance(value, Mapping) else value


def _lines(tree: Mapping[str, Any], path: tuple[str, ...], origins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each line with the origin of its value, empty without one."""
    indent = "  " * len(path)
    for key, value in tree.items():
        here = (*path, key)
        if here[0] == "channels" and len(here) == 3 and _not_given(key, value, tree):
            continue
        name = f"{indent}{_flow(key)}:"
        if isinstance(value, Mapping) and value:
            yield name, ""
            yield from _lines(value, here, origins)
            continue
        yield f"{name} {_flow(_hidden(here, value))}", origins.get(dotted(*here), "default")


def _not_given(key: str, value: Any, channel: Mapping[str, Any]) -> bool:
    # Of two keys that exclude each other, the one that was not given must not be written.
    if key == "processor":
        return bool(channel.get("subscriptions"))
    return key in ("topics", "topics_pattern", "subscriptions") and not value


def _hidden(path: tuple[str, ...], value: Any) -> Any:
    if path[:2] == ("tracing", "headers"):  # under any name: some are credentials
        return HIDDEN if len(path) == 3 and value else value
    if path[0] not in ("kafka", "tracing") and not in_options(path):
        return value
    is_secret = is_secret_property if path[0] == "kafka" else is_secret_option
    if value is not None and is_secret(path[-1]):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _hidden((*path, str(key)), part) for key, part in value.items()}
    if isinstance(value, str):
        return without_credentials(value)
    return [_hidden(path, part) for part in value] if isinstance(value, list) else value


def _flow(value: Any) -> str:
    """Return a scalar or list on one line."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, default_style=style
    )
    return text.removesuffix("\n").removesuffix("\n...")
