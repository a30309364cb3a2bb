"""Turns YAML into typed, frozen models, or lists every problem by line.

Begin with `models.py`, the whole file; its sections are in `*_models.py`. `loader.py` loads a configuration: `document.py` reads
YAML with the line of each value, `overrides.py` lays variables and flags over it, the models check it, `problems.py` words their
errors. `render.py` writes the effective configuration, `schema.py` the JSON Schema. `values.py` and `units.py` have the kinds of
values, `kafka_properties.py` and `kafka_values.py` those of Kafka's clients. `manifests.py` reads Knative's manifests,
`manifest_models.py` has their form. `secrets.py` hides credentials.

This room reads one text at a time and knows no processor, coordinator or client: plugins check their own options.
"""

from inbound.config.channel_models import (
    DISPATCH,
    ChannelConfig,
    CoordinatorConfig,
    CustomCoordinatorConfig,
    DynamicCoordinatorConfig,
    FixedCountCoordinatorConfig,
    OffsetsConfig,
    OnErrorConfig,
    ProcessorConfig,
    ReaderConfig,
    StaticCoordinatorConfig,
)
from inbound.config.listener_models import (
    AdminConfig,
    AdminTlsConfig,
    IngressConfig,
    PolicyConfig,
    PolicyRule,
    ProfilingConfig,
    TlsConfig,
)
from inbound.config.loader import Loaded, depends_on, load, load_policy, read_text
from inbound.config.manifest_models import (
    ChannelManifest,
    ManifestOrigin,
    RefusedManifest,
    ResetManifest,
    ResetOffset,
    parse_time,
)
from inbound.config.manifests import Manifests, parse_manifests
from inbound.config.models import Config, ControllerConfig, LedgerConfig, LoggingConfig, ManifestsConfig, ResetConfig
from inbound.config.problems import validation_problems
from inbound.config.render import render
from inbound.config.tracing_models import TracingConfig
from inbound.config.units import format_duration, format_size, parse_duration, parse_size
from inbound.config.zookeeper_models import ZooKeeperConfig

__all__ = [
    "DISPATCH",
    "AdminConfig",
    "AdminTlsConfig",
    "ChannelConfig",
    "ChannelManifest",
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
