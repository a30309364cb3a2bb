"""How every benchmark ends: a table, and as the last line one JSON object."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    model = "unknown"
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        model = platform.processor() or model
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def finish(benchmark: str, figures: Mapping[str, float | int | str | None]) -> None:
    """Print the closing JSON line."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps({"benchmark": benchmark, "machine": machine(), "figures": rounded}))


def spread(values: Sequence[float]) -> str:
    """Return median and range, to be read."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return between what the middle half of the values is; of one value that value twice."""
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third
