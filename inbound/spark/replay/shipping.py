"""The user's own modules, for executors of other machines."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def shipped_plugins(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Have executors import what stands in the configuration's folder, as `inbound run` does, until the block ends."""
    modules = sorted(folder.glob("*.py"))
    packages = [found.parent for found in sorted(folder.glob("*/__init__.py"))]
    with tempfile.TemporaryDirectory(prefix="inbound-plugins-") as made:  # executors fetch it when they come up
        target = Path(made) / f"plugins-{spark.sparkContext.applicationId}.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
            for file in [*modules, *(file for package in packages for file in sorted(package.rglob("*.py")))]:
                zipped.write(file, str(file.relative_to(folder)))
        if modules or packages:
            spark.sparkContext.addPyFile(str(target))
        yield
