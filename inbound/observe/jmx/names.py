"""Names of beans are `domain:key=value,key=value`, as in JMX. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from inbound.errors import InboundError
from inbound.runtime.patterns import glob

#: The domain of our names, and of patterns without one.
DOMAIN = "inbound"
#: Characters that only quoted values have.
_SPECIAL = re.compile(r'[,=:"*?\n\r]')
#: Our names have a topic, a consumer, a channel: a few hundred characters. Longer patterns are refused.
MOST_CHARACTERS = 4096
_ESCAPED = {"\\": "\\\\", '"': '\\"', "*": "\\*", "?": "\\?", "\n": "\\n"}
_QUOTED = re.compile(r'"(?:[^"\\\n]++|\\["\\*?n])*+"').match


class MalformedNameError(InboundError):
    """A text is neither a bean's name nor a pattern."""


def quoted(value: str) -> str:
    """Return `value`, quoted if needed, as by Java's `ObjectName.quote`."""
    if value and not _SPECIAL.search(value):
        return value
    return f'"{"".join(_ESCAPED.get(letter, letter) for letter in value)}"'


@dataclass(frozen=True)
class ObjectName:
    """A name, or a pattern of names.

    Names with the same keys and values, in any order, are equal.
    """

    domain: str
    properties: tuple[tuple[str, str], ...]  # as written, with quotes
    more: bool = False  # further keys may follow: it ends in `*`

    @classmethod
    def of(cls, **properties: str | int) -> ObjectName:
        """Return a name in our domain; quotes values where needed."""
        return cls(DOMAIN, tuple((key, quoted(str(value))) for key, value in properties.items()))

    @classmethod
    def parse(cls, text: str) -> ObjectName:
        """Parse a name, or a pattern.

        Raises:
            MalformedNameError: the message says why.
        """
        if len(text) > MOST_CHARACTERS:
            raise MalformedNameError(
                f"{text[:40]!r}...: {len(text)} characters; a name, or a pattern, has at most {MOST_CHARACTERS}"
            )
        domain, colon, rest = text.partition(":")
        if not colon:
            raise MalformedNameError(
                f"{text!r}: a domain, a colon and keys are needed, such as {DOMAIN}:type=Channel,*"
            )
        if "\n" in domain:
            raise MalformedNameError(f"{text!r}: the domain has a line end")
        if not rest:
            raise MalformedNameError(f"{text!r}: no key stands after the colon; all names are {domain}:*")
        properties: dict[str, str] = {}
        more = False
        for key, value in _pairs(text, rest):
            if key == "*" and value is None:
                if more:
                    raise MalformedNameError(f"{text!r}: `*` stands for further keys, and can be there once")
                more = True
            elif value is None or not key or re.search(r"[:*?\n]", key):
                raise MalformedNameError(f"{text!r}: {key!r} is no key=value")
            elif key in properties:
                raise MalformedNameError(f"{text!r}: the key {key} is there twice")
            else:
                properties[key] = value
        return cls(domain or DOMAIN, tuple(properties.items()), more)

    @property
    def keys(self) -> str:
        """The keys and values, in the given order."""
        return ",".join([*(f"{key}={value}" for key, value in self.properties), *(["*"] if self.more else [])])

    @property
    def sorted_keys(self) -> str:
        """The keys and values in alphabetical order of the keys."""
        return ObjectName(self.domain, tuple(sorted(self.properties)), self.more).keys

    @cached_property
    def canonical(self) -> str:
        """The canonical form; equal names have the same one."""
        return f"{self.domain}:{self.sorted_keys}"

    @cached_property
    def is_pattern(self) -> bool:
        return self.more or _wild(self.domain) or any(_wild(value) for _, value in self.properties)

    def matches(self, name: ObjectName) -> bool:
        """Whether `name`, no pattern, equals this name or matches this pattern."""
        found: Mapping[str, str] = dict(name.properties)
        if not self.more and len(found) != len(self.properties):
            return False
        of_domain, of_values = self._matchers
        if any(key not in found for key, _ in self.properties) or not of_domain.fullmatch(name.domain):
            return False
        return all(matcher.fullmatch(found[key]) for key, matcher in of_values)

    @cached_property
    def _matchers(self) -> tuple[re.Pattern[str], Sequence[tuple[str, re.Pattern[str]]]]:
        return _matcher(self.domain), [(key, _matcher(value)) for key, value in self.properties]

    def __str__(self) -> str:
        return f"{self.domain}:{self.keys}"


def _pairs(text: str, rest: str) -> Iterator[tuple[str, str | None]]:
    """Yield keys and values between commas; a quoted comma separates nothing."""
    at = 0
    while True:
        comma = rest.find(",", at)
        equals = rest.find("=", at, comma if comma >= 0 else len(rest))
        if equals < 0:
            end = comma if comma >= 0 else len(rest)
            yield rest[at:end], None
        else:
            end = _end_of_value(text, rest, equals + 1)
            yield rest[at:equals], rest[equals + 1 : end]
        if end == len(rest):
            return
        at = end + 1


def _end_of_value(text: str, rest: str, start: int) -> int:
    """Return the value's end: a comma, or the end of the text."""
    if rest.startswith('"', start):
        found = _QUOTED(rest, start)
        if found is None or (found.end() < len(rest) and rest[found.end()] != ","):
            raise MalformedNameError(f"{text!r}: a value in quotes does not end, or has a \\ that nothing follows")
        return found.end()
    comma = rest.find(",", start)
    end = comma if comma >= 0 else len(rest)
    if re.search(r'[=:"\n]', rest[start:end]):
        raise MalformedNameError(f"{text!r}: the value {rest[start:end]!r} has a sign that needs quotes")
    return end


def _wild(text: str) -> bool:
    unescaped = re.sub(r"\\.", "", text) if text.startswith('"') else text
    return "*" in unescaped or "?" in unescaped


def _matcher(pattern: str) -> re.Pattern[str]:
    """Return the expression for a domain, or for a value as written."""
    escape = r"\\.|" if pattern.startswith('"') else ""
    return glob(re.split(rf"({escape}\*|\?)", pattern))
