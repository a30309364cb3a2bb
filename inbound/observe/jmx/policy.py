"""The policy allows requests of /jmx and /jolokia, as `jolokia-access.xml` does."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inbound.config import PolicyConfig, PolicyRule
from inbound.errors import ConfigError
from inbound.observe.jmx.names import MalformedNameError, ObjectName
from inbound.runtime.patterns import glob

#: Returns the current policy. May raise ConfigError: then nothing is allowed.
ReadPolicy = Callable[[], "Policy"]


@dataclass(frozen=True)
class _Rule:
    bean: ObjectName
    of: dict[str, list[re.Pattern[str]]]  # by command

    def covers(self, command: str, name: ObjectName, member: str) -> bool:
        return self.bean.matches(name) and any(pattern.fullmatch(member) for pattern in self.of[command])


class Policy:
    """A policy of clients, methods, commands and members. Any thread.

    A listed command is allowed unless a rule of `deny` covers its attribute or operation; a command that is not listed is
    allowed only if a rule of `allow` covers it.
    """

    def __init__(self, config: PolicyConfig | None = None, filename: str = "") -> None:
        """None allows everything; raises ConfigError: a bean's name is invalid."""
        config = config or PolicyConfig()
        self._hosts = None if config.hosts is None else [ipaddress.ip_network(h, strict=False) for h in config.hosts]
        self._methods = config.methods
        self._commands = config.commands
        self._allow = _rules(config.allow, f"{filename}: allow")
        self._deny = _rules(config.deny, f"{filename}: deny")

    def lets_in(self, client: str) -> bool:
        """Whether a client at that address may send requests."""
        if self._hosts is None:
            return True
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return False
        return any((getattr(address, "ipv4_mapped", None) or address) in network for network in self._hosts)

    def method(self, method: str) -> bool:
        return self._methods is None or method.lower() in self._methods

    def command(self, command: str) -> bool:
        return self._commands is None or command in self._commands

    def member(self, command: str, bean: ObjectName, member: str) -> bool:
        """Whether an attribute may be read or written, or an operation called."""
        listed = self.command(command)
        return listed is not any(rule.covers(command, bean, member) for rule in (self._deny if listed else self._allow))


def _rules(found: Sequence[PolicyRule], where: str) -> list[_Rule]:
    rules = []
    for number, rule in enumerate(found):
        try:
            bean = ObjectName.parse(rule.bean)
        except MalformedNameError as error:
            raise ConfigError(f"{where}[{number}].bean: {error}") from None
        of = {"read": rule.read, "write": rule.write, "exec": rule.exec}
        rules.append(_Rule(bean, {command: [glob(word) for word in words] for command, words in of.items()}))
    return rules
