"""Plain values as YAML for people and for `kubectl`: nothing sorted, nothing wrapped, texts of several lines as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes everything out: an anchor and its aliases would only be in the way of a diff."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return the documents, with `---` between them."""
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31) for document in documents
    )
