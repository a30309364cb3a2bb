"""Typed configuration: YAML, environment and flags in; frozen models, or every problem with its line, out."""

from inbound.config.admin_models import AdminConfig, AdminTlsConfig
from inbound.config.channel_models import (
    DISPATCH,
    ChannelConfig,
    OnErrorConfig,
    ProcessorConfig,
    ReaderConfig,
)
from inbound.config.coordinator_models import (
    CoordinatorConfig,
    CustomCoordinatorConfig,
    DynamicCoordinatorConfig,
    FixedCountCoordinatorConfig,
    StaticCoordinatorConfig,
)
from inbound.config.depends import depends_on
from inbound.config.ingress_models import IngressConfig, TlsConfig
from inbound.config.kafka_channel import Manifest
from inbound.config.ledger_models import LedgerConfig
from inbound.config.loader import Loaded, load, read_text
from inbound.config.logging_models import LoggingConfig
from inbound.config.manifests import Manifests, parse_manifests
from inbound.config.mirror_models import OffsetsConfig
from inbound.config.models import Config, ControllerConfig, ManifestsConfig
from inbound.config.policy_models import PolicyConfig, PolicyRule, load_policy
from inbound.config.problems import validation_problems
from inbound.config.profiling_models import ProfilingConfig
from inbound.config.refused_manifest import ManifestOrigin, RefusedManifest
from inbound.config.render import render
from inbound.config.reset_models import ResetConfig
from inbound.config.reset_offset import ResetManifest, ResetOffset, parse_time
from inbound.config.tracing_models import TracingConfig
from inbound.config.units import format_duration, format_size, parse_duration, parse_size
from inbound.config.zookeeper_models import ZooKeeperConfig

__all__ = [
    "DISPATCH",
    "AdminConfig",
    "AdminTlsConfig",
    "ChannelConfig",
    "Config",
    "ControllerConfig",
    "CoordinatorConfig",
    "CustomCoordinatorConfig",
    "DynamicCoordinatorConfig",
    "FixedCountCoordinatorConfig",
    "IngressConfig",
    "LedgerConfig",
    "Loaded",
    "LoggingConfig",
    "Manifest",
    "ManifestOrigin",
    "Manifests",
    "ManifestsConfig",
    "OffsetsConfig",
    "OnErrorConfig",
    "PolicyConfig",
    "PolicyRule",
    "ProcessorConfig",
    "ProfilingConfig",
    "ReaderConfig",
    "RefusedManifest",
    "ResetConfig",
    "ResetManifest",
    "ResetOffset",
    "StaticCoordinatorConfig",
    "TlsConfig",
    "TracingConfig",
    "ZooKeeperConfig",
    "depends_on",
    "format_duration",
    "format_size",
    "load",
    "load_policy",
    "parse_duration",
    "parse_manifests",
    "parse_size",
    "parse_time",
    "read_text",
    "render",
    "validation_problems",
]
