"""Plugins are classes: shipped ones, entry points, `module:Class`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from inspect import isasyncgenfunction, isgeneratorfunction
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from inbound.config import (
    Config,
    CoordinatorConfig,
    DynamicCoordinatorConfig,
    FixedCountCoordinatorConfig,
    Loaded,
    StaticCoordinatorConfig,
)
from inbound.config.schema import DIALECT, schema_of, schemas_of
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.custom import CustomCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator
from inbound.errors import ConfigError
from inbound.plan.subscriptions import SubscriptionOptions
from inbound.processors.base import CALLBACKS, BatchEventProcessor, async_callbacks, is_async

GROUP = "inbound.processors"


@dataclass(frozen=True, order=True)
class Offer:
    """A name, its class (`module:Class`), and the distribution that offers it."""

    name: str
    target: str
    distribution: str


def offers(group: str = GROUP) -> list[Offer]:
    """Return the installed entry points of a group, ordered by name."""
    found = set()
    for point in entry_points(group=group):
        distribution = (
            f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"
        )
        found.add(Offer(point.name, point.value.partition("[")[0].strip(), distribution))
    return sorted(found)


def offer_of(name: str, built_in: Collection[str]) -> Offer:
    """Return the one offer of this name.

    Raises:
        ConfigError: no distribution offers it, two mean different classes by it, or it names no class.
    """
    everything = offers()
    found = [offer for offer in everything if offer.name == name]
    if not found:
        known = sorted({*built_in, *(offer.name for offer in everything)})
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"no processor is called {name!r}; {hint}use one of {', '.join(known)}, or module:Class")
    if len({offer.target for offer in found}) > 1:
        means = " and ".join(f"{offer.distribution} ({offer.target})" for offer in found)
        raise ConfigError(
            f"{name!r} is offered by {means}; write the one that you mean as module:Class, or uninstall the other"
        )
    offer = found[0]
    if not offer.target.partition(":")[2]:
        raise ConfigError(
            f"{name!r} of {offer.distribution} is {offer.target!r}, which names no class; its entry point must say module:Class"
        )
    return offer


#: Shipped processors, imported when asked for.
BUILT_IN: Mapping[str, str] = {
    "dispatch": "inbound.processors.dispatch.processor:DispatchProcessor",
    "simple": "inbound.processors.simple:SimpleProcessor",
}


@dataclass(frozen=True)
class FoundProcessor:
    """A processor class, and where it came from, in words."""

    cls: type[BatchEventProcessor]
    origin: str


def find_processor(name: str) -> FoundProcessor:
    """Return the processor class that `name` stands for.

    inbound's own names take precedence over those of distributions.

    Raises:
        ConfigError: there is none, several match, it cannot be imported, or it is no BatchEventProcessor; the message
            names the line that failed.
    """
    if name in BUILT_IN:
        return FoundProcessor(_processor_class(name, load(BUILT_IN[name])), f"{BUILT_IN[name]}, part of inbound")
    if ":" in name:
        return FoundProcessor(_processor_class(name, load(name)), file_of(name))
    offer = offer_of(name, BUILT_IN)
    try:
        cls = _processor_class(name, load(offer.target, offered_by=offer.distribution))
    except ConfigError as error:
        raise ConfigError(f"{name!r} of {offer.distribution}: {error}") from None
    return FoundProcessor(cls, f"{offer.target} of {offer.distribution}")


def file_of(target: str) -> str:
    """Return the file that the class `module:Class`, once loaded, came from."""
    return getattr(sys.modules.get(target.partition(":")[0]), "__file__", None) or "no file"


def _processor_class(name: str, found_class: type[BatchEventProcessor]) -> type[BatchEventProcessor]:
    _check_base(name, found_class, BatchEventProcessor, "inbound.BatchEventProcessor", "every batch is delivered to it")
    if (problem := _misuse(found_class)) is not None:
        raise ConfigError(f"{name}: {problem}")
    if async_callbacks(found_class) and not is_async(found_class):
        raise ConfigError(
            f"{name}: {', '.join(async_callbacks(found_class))} is async, on_next_batch is not; make on_next_batch async too, "
            "or none of them"
        )
    return found_class


def _check_base(name: str, found: Any, base: type[Any], path: str, purpose: str) -> None:
    """Raise ConfigError unless `found` is a concrete class derived from `base`."""
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{name} is {found!r}, not a {base.__name__}; derive it from {path}")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{name} lacks {', '.join(missing)}; write it: {purpose}")


def _misuse(cls: Any) -> str | None:
    """Return the problem of a processor class's attributes; None: there is none."""
    options, ahead = cls.Options, cls.prefetch_bytes
    if options is not None and not (isinstance(options, type) and issubclass(options, BaseModel)):
        return f"Options is a {type(options).__name__}, and no pydantic model; derive it from pydantic.BaseModel"
    if ahead is not None and not isinstance(ahead, property) and (type(ahead) is not int or ahead < 1):
        return f"prefetch_bytes is {ahead!r}; give bytes, a whole number of at least 1, or None"
    for name in ("ordered", "makes_spans", "commits_first"):
        if not isinstance(value := getattr(cls, name), bool | property):
            return f"{name} is {value!r}; give True or False"
    for name in CALLBACKS:
        if not callable(value := getattr(cls, name)):
            return f"{name} is {value!r}, and cannot be called; write a method, or leave it out"
    if isgeneratorfunction(cls.on_next_batch) or isasyncgenfunction(cls.on_next_batch):
        return "on_next_batch yields; a batch has one answer: return it"
    return None


def made(channel: str, cls: type[BatchEventProcessor]) -> BatchEventProcessor:
    """Return a processor of this class for a channel.

    Raises:
        ConfigError: its constructor failed.
    """
    try:
        return cls()
    except Exception as error:
        raise ConfigError(
            f"channel {channel}: {cls.__name__} cannot be made: {type(error).__name__}: {error} ({_place(error)}); it is made "
            "without arguments: its options come to open, as context.options"
        ) from None


def coordinator_of(config: CoordinatorConfig, where: str, loaded: Loaded) -> ZkCoordinator:
    """Return the coordinator that is configured at `where`, a dotted path.

    Raises:
        ConfigError: a user's class or its options cannot be used; a line for each problem, with its place in the file.
    """
    if isinstance(config, DynamicCoordinatorConfig):
        return DynamicCoordinator()
    if isinstance(config, FixedCountCoordinatorConfig):
        return FixedCountCoordinator(config.count)
    if isinstance(config, StaticCoordinatorConfig):
        return StaticCoordinator(config.partitions)
    try:
        cls = load(config.type)
        path = "inbound.coordinators.base.ZkCoordinator"
        _check_base(config.type, cls, ZkCoordinator, path, "it says what to take and what to release")
    except ConfigError as error:
        raise ConfigError(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}") from None
    options = options_of(cls, config.options, f"{where}.options", loaded)
    try:
        return _made(config.type, cls, options)
    except ConfigError as error:
        raise ConfigError(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}") from None


def _made(name: str, cls: type[ZkCoordinator], options: Any) -> ZkCoordinator:
    try:
        made = cls(options)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot be made with its options: {type(error).__name__}: {error} ({_place(error)})"
        ) from None
    try:
        coordinator = CustomCoordinator(name, made)
        json.dumps(coordinator.registration(), allow_nan=False)
    except Exception as error:
        raise ConfigError(
            f"{name}.parameters cannot stand in the id node: {type(error).__name__}: {error} ({_place(error)}); return a "
            "dict of text, numbers, true, false, lists and dicts"
        ) from None
    return coordinator


def load(target: str, *, offered_by: str | None = None) -> Any:
    """Import `module:Class`; `offered_by` is the distribution that names it.

    Raises:
        ConfigError: no such module or name, or the module's own code failed.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            top = module_name.split(".")[0]
            advice = f"put {top}.py beside the configuration file, or install it"
            raise ConfigError(
                f"no module {module_name!r}; {f'install {offered_by} again' if offered_by else advice}"
            ) from None
        raise ConfigError(
            f"{module_name} needs the module {error.name!r}, which is not installed ({_place(error)})"
        ) from None
    except Exception as error:
        place = _place(error)
        said = error.msg if isinstance(error, SyntaxError) and place.startswith(f"{error.filename}:") else error
        raise ConfigError(f"{module_name} failed when imported: {type(error).__name__}: {said} ({place})") from None
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(
                f"{module_name} has no {attribute!r}; its path is {getattr(module, '__file__', 'unknown')}"
            )
        found = getattr(found, part)
    return found


def options_of(
    cls: type[BatchEventProcessor] | type[ZkCoordinator], options: Mapping[str, Any], path: str, loaded: Loaded
) -> Any:
    """Return the plugin's options, validated by its model if it has one.

    Raises:
        ConfigError: a line for each problem, with its place in the file.
    """
    return dict(options) if cls.Options is None else loaded.validate(cls.Options, path, options)


def _place(error: BaseException) -> str:
    """Return an error's file and line; an unparsed file has no frame."""
    if isinstance(error, SyntaxError) and Path(error.filename or "").is_file():
        return f"{error.filename}:{error.lineno or 1}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no place known"


# -- the JSON Schema of the configuration, with the options of plugins ---------------------------------------------


Schema = dict[str, Any]


def configuration_schema() -> Schema:
    """Return the schema of `inbound.yaml`.

    Bounds of durations and sizes stand in `$comment`: see `with_units`.
    """
    options = {name: model for name in BUILT_IN if (model := find_processor(name).cls.Options) is not None}
    references, definitions = schemas_of([Config, SubscriptionOptions, *options.values()])
    subscriptions = definitions["ChannelConfig"]["properties"]["subscriptions"]
    subscriptions["patternProperties"] = dict.fromkeys(
        subscriptions["patternProperties"], references[SubscriptionOptions]
    )
    definitions["ProcessorConfig"]["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {
                "properties": {"options": references[model]},
                **({"required": ["options"]} if any(f.is_required() for f in model.model_fields.values()) else {}),
            },
        }
        for name, model in options.items()
    ]
    kinds = definitions["ProcessorConfig"]["properties"]["type"]
    kinds["anyOf"] = [{"enum": list(BUILT_IN)}, {"pattern": kinds.pop("pattern")}]  # the first for completion
    return {"$schema": DIALECT, "title": "inbound.yaml", **definitions.pop("Config"), "$defs": definitions}


def options_schema(cls: type[BatchEventProcessor], name: str) -> Schema:
    """Return the schema of a processor's `options`; without a model, anything passes.

    Raises:
        ConfigError: a field's type has no JSON Schema.
    """
    head = {"$schema": DIALECT, "title": f"options of {name}"}
    model = cls.Options
    if model is None:
        return {**head, "type": "object", "description": f"{name} has no `Options` model, so nothing is checked."}
    try:
        return {**schema_of(model), **head}
    except PydanticUserError as error:
        reason = str(error.message).partition("\n")[0]
        raise ConfigError(
            f"{name}: {model.__name__} has no JSON Schema: {reason}; give the field pydantic's WithJsonSchema"
        ) from None
