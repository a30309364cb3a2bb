"""Typed configuration: YAML, environment and flags in; frozen models, or every problem with its line, out."""

from inbound.config.channel_models import ChannelConfig, OnErrorConfig, ProcessorConfig, ReaderConfig
from inbound.config.coordinator_models import (
    CoordinatorConfig,
    CustomCoordinatorConfig,
    DynamicCoordinatorConfig,
    FixedCountCoordinatorConfig,
    StaticCoordinatorConfig,
)
from inbound.config.loader import Loaded, load, read_text
from inbound.config.models import AdminConfig, Config, ControllerConfig, LedgerConfig, ZooKeeperConfig
from inbound.config.problems import validation_problems
from inbound.config.render import render
from inbound.config.units import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "AdminConfig",
    "ChannelConfig",
    "Config",
    "ControllerConfig",
    "CoordinatorConfig",
    "CustomCoordinatorConfig",
    "DynamicCoordinatorConfig",
    "FixedCountCoordinatorConfig",
    "LedgerConfig",
    "Loaded",
    "OnErrorConfig",
    "ProcessorConfig",
    "ReaderConfig",
    "StaticCoordinatorConfig",
    "ZooKeeperConfig",
    "format_duration",
    "format_size",
    "load",
    "parse_duration",
    "parse_size",
    "read_text",
    "render",
    "validation_problems",
]
