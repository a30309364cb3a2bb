"""Modules that are no part of the package: examples, and what an image or a container runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_module(path: str) -> ModuleType:
    """Import a file of the checkout, such as `examples/model/scores.py`, as `loaded_scores`."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"loaded_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
