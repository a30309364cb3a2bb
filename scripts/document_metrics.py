"""Renew the tables in docs/metrics.md from the table in the code and from the alerts (`make docs`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from inbound.observe.metrics import SECTIONS
from inbound.observe.metrics.definition import AnySection, Metric
from scripts.made_tables import DOCS, with_tables

DOCUMENT, ALERTS, DASHBOARD = DOCS / "metrics.md", DOCS / "alerts.yaml", DOCS / "grafana" / "inbound.json"


def documented(text: str) -> list[str]:
    """Return the metrics that a document lists."""
    return re.findall(r"(?m)^\| `([a-z_]+)` \|", text)


def renewed(text: str) -> str:
    """Return the document with the tables as the code has them now. Raises ValueError: the marks around them are missing."""
    return with_tables(DOCUMENT, text, f"{tables()}\n{alerts()}")


def tables() -> str:
    """Return a table for each section."""
    return "\n".join(line for section in SECTIONS for line in _lines(section))


def alerts() -> str:
    """Return the table of alerts."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    lines = [
        "## What to alert on",
        "The rules of [alerts.yaml](alerts.yaml), which say what to do. `page`: data waits for an operator; `ticket`: it can wait.",
        "",
        "| alert | severity | holds for | expression |",
        "|---|---|---|---|",
        *(
            f"| {r['alert']} | {r['labels']['severity']} | {r.get('for', 'at once')} | `{_escaped(r['expr'])}` |"
            for r in rules
        ),
        "",
    ]
    return "\n".join(lines)


def _lines(section: AnySection) -> Iterator[str]:
    labels = ", ".join(f"`{label}`" for label in section.labels)
    yield f"### {section.title}"
    yield (
        f"{section.text} "
        + (f"Labels: {labels}." if labels else "No labels.")
        + f" At most {section.most} series each."
    )
    yield ""
    yield "| metric | type | says |"
    yield "|---|---|---|"
    for metric in section.metrics:
        yield f"| `{metric.name}` | {_type(metric)} | {_escaped(metric.help)} |"
    yield ""


def _type(metric: Metric[object]) -> str:
    unit = f", {metric.unit}" if metric.unit else ""
    label = f", by `{metric.label}`" if metric.label else ""
    return f"{metric.kind}{unit}{label}"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> None:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
