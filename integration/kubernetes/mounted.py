"""A folder as Kubernetes mounts a ConfigMap."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path


def mount(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Replace everything in a folder, in one go: files are links into `..data`, and that is a link to what counts."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..{secrets.token_hex(8)}"
    version.mkdir()
    for name, content in files.items():
        (version / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "..data_tmp").symlink_to(version.name)
    os.replace(folder / "..data_tmp", folder / "..data")
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(Path("..data") / name)
    for old in folder.iterdir():
        if old.is_dir() and not old.is_symlink() and old != version:
            shutil.rmtree(old)
        elif old.name not in ("..data", version.name, *files):
            old.unlink()
