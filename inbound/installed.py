"""Processors that installed distributions offer by a name of their own: entry points of the group `inbound.processors`.

In the `pyproject.toml` of such a distribution:

    [project.entry-points."inbound.processors"]
    orders = "shop.processing:Orders"

Then `processor: {type: orders}` is enough. Only the metadata is read here; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points

from inbound.errors import ConfigError

GROUP = "inbound.processors"


@dataclass(frozen=True, order=True)
class Offer:
    """A name, what it stands for (`module:Class`), and the distribution that says so, with its version."""

    name: str
    target: str
    distribution: str


def offers() -> list[Offer]:
    """Return what is offered by everything on the import path, in the order of the names."""
    found = set()
    for point in entry_points(group=GROUP):
        distribution = (
            f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"
        )
        found.add(Offer(point.name, point.value.partition("[")[0].strip(), distribution))
    return sorted(found)


def offer_of(name: str, built_in: Collection[str]) -> Offer:
    """Return the one offer of this name.

    Raises:
        ConfigError: nobody offers it, two distributions mean different classes by it, or it names no class.
    """
    everything = offers()
    found = [offer for offer in everything if offer.name == name]
    if not found:
        known = sorted({*built_in, *(offer.name for offer in everything)})
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"no processor is called {name!r}; {hint}use one of {', '.join(known)}, or module:Class")
    if len({offer.target for offer in found}) > 1:
        means = " and ".join(f"{offer.distribution} ({offer.target})" for offer in found)
        raise ConfigError(
            f"{name!r} is offered by {means}; write the one that you mean as module:Class, or uninstall the other"
        )
    offer = found[0]
    if not offer.target.partition(":")[2]:
        raise ConfigError(
            f"{name!r} of {offer.distribution} is {offer.target!r}, which names no class; its entry point must say module:Class"
        )
    return offer
