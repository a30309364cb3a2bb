"""Typed configuration: text in; frozen models, or every problem with its line, out.

Begin with `models.py`: the whole file; its sections are in `*_models.py`. `loader.py` is the way through: `document.py` (YAML with
the line of everything), environment and flags, the models, `problems.py` (errors in the file's words);
`render.py` writes the effective configuration, `schema.py` the JSON Schema. `values.py` and `units.py` have the kinds of
value. Knative's manifests: `manifests.py` reads them, `manifest_models.py` is their form. `secrets.py` hides credentials.

This room reads one text at a time and knows no processor, coordinator or client: options of plugins are theirs to check.
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
