"""Whether a folder outlives the pod that it is in: what `/proc/self/mountinfo` says of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

#: File systems whose content is gone with the container, or with the machine's memory.
_PASSING = {
    "overlay": "the container's own file system (overlay)",
    "tmpfs": "memory (tmpfs)",
    "ramfs": "memory (ramfs)",
}
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOUNTS = Path("/proc/self/mountinfo")


def in_kubernetes(environ: Mapping[str, str], account: Path = _ACCOUNT) -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in environ or account.exists()


def own_mounts() -> str:
    """Return this process's `mountinfo`; empty where the system has none."""
    try:
        return _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""


def passing(mountinfo: str, path: PurePosixPath) -> str | None:
    """Return what a folder is on that does not outlive its pod, in words; None: it does, as far as one can see.

    `mountinfo` is the text of `/proc/<pid>/mountinfo` (see proc(5)), `path` an absolute path without links.
    """
    best: tuple[int, str, str] | None = None
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts, kind = fields.split(" "), rest.partition(" ")[0]
        if len(parts) < 6 or not kind:
            continue
        root, point = _unescaped(parts[3]), PurePosixPath(_unescaped(parts[4]))
        # A later mount on the same place covers an earlier one.
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = len(point.parts), kind, root
    if best is None:
        return None
    _, kind, root = best
    return "an emptyDir volume" if "kubernetes.io~empty-dir" in root else _PASSING.get(kind)


def resolved(path: Path) -> PurePosixPath:
    """Return a path as `passing` wants it; it need not be there yet."""
    return PurePosixPath(os.path.realpath(path))


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
