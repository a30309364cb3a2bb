"""The policy file of the JMX face (`admin.policy`): which commands, beans, attributes and operations are for whom.

Its parts and their meaning are those of Jolokia's `jolokia-access.xml`; see docs/jmx.md.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from inbound.config.document import parse
from inbound.config.loader import validated
from inbound.config.values import Part, text, wrong
from inbound.errors import ConfigError

#: What can be asked for. `notification` is answered with an error in any case.
Command = Literal["read", "write", "exec", "list", "search", "version", "notification"]


def _network(value: Any) -> str:
    given = text(value)
    try:
        ipaddress.ip_network(given, strict=False)
    except ValueError:
        raise wrong(
            f"need an address or a network, such as 10.0.0.7 or 10.0.0.0/8, got {given}; names are not looked up, for whoever "
            "writes the DNS would decide"
        ) from None
    return given


def _not_empty(value: str) -> str:
    if not value.strip():
        raise wrong("need text, got nothing")
    return value


Pattern = Annotated[str, BeforeValidator(text), AfterValidator(_not_empty)]


class PolicyRule(Part):
    """Beans, and what of them a rule is about. `*` and `?` stand for any letters, and any one letter."""

    bean: Pattern = Field(description="name or pattern, such as `inbound:type=Channel,*`")
    read: tuple[Pattern, ...] = Field(default=(), description="attributes that may (not) be read")
    write: tuple[Pattern, ...] = Field(default=(), description="attributes that may (not) be written")
    exec: tuple[Pattern, ...] = Field(
        default=(), description="operations that may (not) be called, by their names alone"
    )


class PolicyConfig(Part):
    """What may be asked for under `/jmx` and `/jolokia`, and from where."""

    hosts: tuple[Annotated[str, BeforeValidator(_network)], ...] | None = Field(
        default=None, description="addresses and networks that may ask; without it all may"
    )
    methods: tuple[Literal["get", "post"], ...] | None = Field(
        default=None, description="HTTP methods of `/jolokia`; without it both"
    )
    commands: tuple[Command, ...] | None = Field(
        default=None,
        description="what is allowed but for `deny`; the others are refused but for `allow`; without it all are",
    )
    allow: tuple[PolicyRule, ...] = Field(default=(), description="exceptions for commands that are not listed")
    deny: tuple[PolicyRule, ...] = Field(default=(), description="exceptions for commands that are listed")


def load_policy(content: str, filename: str) -> PolicyConfig:
    """Return the policy that a file holds.

    Raises:
        ConfigError: every problem, one a line, with file and line.
    """
    if not content.strip():
        raise ConfigError(f"{filename}: is empty; a policy that allows everything is `deny: []`")
    document = parse(content, filename)
    if document.problems:
        raise ConfigError("\n".join(document.problems))
    return validated(PolicyConfig, "", document.tree, document.places)
