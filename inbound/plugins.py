"""From a name in the configuration to a class or what it makes: `simple`, an entry point, or `module:Class`."""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from inbound.config import (
    DynamicCoordinatorConfig,
    FixedCountCoordinatorConfig,
    Loaded,
    StaticCoordinatorConfig,
)
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.custom import CustomCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator
from inbound.errors import ConfigError
from inbound.processors.base import BatchEventProcessor

GROUP = "inbound.processors"

#: Shipped processors, imported when asked for.
BUILT_IN: Mapping[str, str] = {"simple": "inbound.processors.simple:SimpleProcessor"}


def processor_class(name: str) -> type[BatchEventProcessor]:
    """Return the processor class that `name` stands for.

    Raises:
        ConfigError: it cannot be imported, or is no BatchEventProcessor; the message says which line failed.
    """
    target = BUILT_IN.get(name)
    if target is None and ":" not in name:
        found = {point.name: point for point in entry_points(group=GROUP)}
        if name not in found:
            known = ", ".join(sorted({*BUILT_IN, *found}))
            raise ConfigError(f"no processor is called {name!r}; use one of {known}, or module:Class")
        target = found[name].value
    found_class = load(target or name)
    if not (isinstance(found_class, type) and issubclass(found_class, BatchEventProcessor)):
        raise ConfigError(
            f"{name} is {found_class!r}, not a BatchEventProcessor; derive it from inbound.BatchEventProcessor"
        )
    missing = sorted(getattr(found_class, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{name} lacks {', '.join(missing)}; write it: it is handed every batch")
    return found_class


def coordinator_of(channel: str, loaded: Loaded) -> ZkCoordinator:
    """Return the coordinator that the configuration asks for.

    Raises:
        ConfigError: a class of the user's cannot be used, or its options; with the place in the file, a line for each
            problem.
    """
    config = loaded.config.channels[channel].coordinator
    if isinstance(config, DynamicCoordinatorConfig):
        return DynamicCoordinator()
    if isinstance(config, FixedCountCoordinatorConfig):
        return FixedCountCoordinator(config.count)
    if isinstance(config, StaticCoordinatorConfig):
        return StaticCoordinator(config.partitions)
    where = f"channels.{channel}.coordinator"
    try:
        cls = _coordinator_class(config.type)
    except ConfigError as error:
        raise ConfigError(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}") from None
    options = options_of(cls, config.options, f"{where}.options", loaded)
    try:
        return _made(config.type, cls, options)
    except ConfigError as error:
        raise ConfigError(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}") from None


def _coordinator_class(name: str) -> type[ZkCoordinator]:
    found = load(name)
    if not (isinstance(found, type) and issubclass(found, ZkCoordinator)):
        raise ConfigError(
            f"{name} is {found!r}, not a ZkCoordinator; derive it from inbound.coordinators.base.ZkCoordinator"
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"{name} lacks {', '.join(missing)}; write it: it says what to take and what to release")
    return found


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


def load(target: str) -> Any:
    """Import `module:Class`.

    Raises:
        ConfigError: no such module or name, or the module's own code failed.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"no module {module_name!r}; put {module_name.split('.')[0]}.py beside the configuration file, or install it"
            ) from None
        raise ConfigError(
            f"{module_name} needs the module {error.name!r}, which is not installed ({_place(error)})"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"{module_name} failed when imported: {type(error).__name__}: {error} ({_place(error)})"
        ) from None
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
    """Return the plugin's options, validated by its own model where it has one.

    Raises:
        ConfigError: a line for each problem, with its place in the file.
    """
    return dict(options) if cls.Options is None else loaded.validate(cls.Options, path, options)


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no place known"
