"""What a policy file lets be done: the meaning of its parts is that of Jolokia's `jolokia-access.xml`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inbound.config import PolicyConfig, PolicyRule
from inbound.errors import ConfigError
from inbound.globs import glob
from inbound.jmx.names import MalformedNameError, ObjectName

#: Returns the policy as it is now. May raise ConfigError: then nothing is allowed.
ReadPolicy = Callable[[], "Policy"]


@dataclass(frozen=True)
class _Rule:
    bean: ObjectName
    of: dict[str, list[re.Pattern[str]]]  # by command

    def covers(self, command: str, name: ObjectName, member: str) -> bool:
        return self.bean.matches(name) and any(pattern.fullmatch(member) for pattern in self.of[command])


class Policy:
    """A policy. Any thread.

    A command that it lists is allowed where no rule of `deny` covers what it is about; one that it does not list is
    allowed where a rule of `allow` does.
    """

    def __init__(self, config: PolicyConfig | None = None, filename: str = "") -> None:
        """None: everything is allowed. Raises ConfigError if a bean's name in it is none."""
        config = config or PolicyConfig()
        self._hosts = None if config.hosts is None else [ipaddress.ip_network(h, strict=False) for h in config.hosts]
        self._methods = config.methods
        self._commands = config.commands
        self._allow = _rules(config.allow, f"{filename}: allow")
        self._deny = _rules(config.deny, f"{filename}: deny")

    def lets_in(self, client: str) -> bool:
        """Whether somebody at that address may ask for anything."""
        if self._hosts is None:
            return True
        try:
            address = ipaddress.ip_address(client.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._hosts)

    def method(self, method: str) -> bool:
        """Whether that HTTP method may be used."""
        return self._methods is None or method.lower() in self._methods

    def command(self, command: str) -> bool:
        """Whether a command that is about no certain bean may be used."""
        return self._commands is None or command in self._commands

    def member(self, command: str, bean: ObjectName, member: str) -> bool:
        """Whether an attribute may be read or written, or an operation be called."""
        rules = self._deny if self.command(command) else self._allow
        covered = any(rule.covers(command, bean, member) for rule in rules)
        return covered is not self.command(command)


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
