"""From Knative's ResetOffset manifests to resets: which reset, under which name. Pure."""

from __future__ import annotations

import hashlib
import json

from inbound.config import ResetManifest, ResetOffset, parse_time
from inbound.controller.reset_offset import Ref, RefInfo, RefMapper, ResetCommand, ResetSpec, To
from inbound.errors import ConfigError


def command_of(manifest: ResetManifest, mapper: RefMapper, *, created: float, by: str) -> ResetCommand:
    """Return the reset that a manifest asks for; `created` is in seconds since 1970.

    Whoever reads the same manifest gets the same name, and that is used once: however many submit it, and however often,
    it is carried out once. Another content, uid or generation is another reset.

    Raises:
        ConfigError: the manifest cannot be used.
        UnknownRefError: what it names is not known.
    """
    if manifest.reset is None:
        raise ConfigError(manifest.problem or f"{manifest.where}: {manifest.name} cannot be used")
    ref = ref_of(manifest.reset)
    info: RefInfo = mapper.map(ref)
    return ResetCommand(
        name=name_of(manifest.reset),
        ref=ref,
        info=info,
        spec=spec_of(manifest.reset),
        created=created,
        by=by,
        once=True,
    )


def ref_of(reset: ResetOffset) -> Ref:
    """Return what a manifest names. An object of Kubernetes is in the reset's namespace, if it says no other one."""
    given = reset.spec.ref
    namespace = given.namespace or (reset.metadata.namespace if given.apiVersion else None)
    return Ref(kind=given.kind, name=given.name, namespace=namespace, api_version=given.apiVersion)


def spec_of(reset: ResetOffset) -> ResetSpec:
    """Return where to: `earliest`, `latest`, or a time."""
    time = reset.spec.offset.time
    if time in (To.EARLIEST.value, To.LATEST.value):
        return ResetSpec(to=To(time))
    return ResetSpec(to=To.TIME, time=parse_time(time))


def name_of(reset: ResetOffset) -> str:
    """Return the name of a manifest's reset: `<namespace>.<name>.<what stands for its content>`."""
    metadata = reset.metadata
    content = [metadata.uid, metadata.generation, reset.spec.model_dump(mode="json")]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{metadata.namespace}.{metadata.name}.{digest[:12]}"
