"""The channels of a configuration, by the names in dead letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from inbound.config import Loaded
from inbound.dead_letters.letter import Letter
from inbound.errors import ConfigError
from inbound.plan.subscriptions import plain_channels, read_subscriptions
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Target


@dataclass(frozen=True)
class LetterSource:
    """A channel of the configuration: a subscription, or another one."""

    name: str
    group: str
    processor: str
    options: DispatchOptions | None  # None: it does not dispatch
    uid: str | None = None

    @property
    def url(self) -> str | None:
        """The subscriber's URL as messages show it; None: there is none."""
        return None if self.options is None else Target(self.options.subscriberUri, 0.0, 0.0).shown


#: The characters of an unknown name that are shown: a letter may hold any.
LONGEST_NAME = 256


class Subscribers:
    """All channels of one configuration."""

    def __init__(self, loaded: Loaded) -> None:
        """Raises ConfigError with a line per problem of the configuration."""
        subscriptions = read_subscriptions(loaded)
        self.refused = subscriptions.refused  # manifests whose subscriptions are unknown
        self._all = [
            LetterSource(name, channel.group, channel.processor.type, _options(loaded, name))
            for name, channel in plain_channels(loaded).items()
        ]
        self._all += [
            LetterSource(name, made.config.group, "dispatch", made.options, made.ref.uid)
            for name, made in subscriptions.found.items()
        ]
        self._by_group = {one.group: one.name for one in self._all}
        self._by_url = {one.url: one.name for one in self._all if one.url is not None}

    def name_of(self, letter: Letter) -> str:
        """Return the channel, group or URL that gave a record up."""
        if letter.group is not None:
            return self._by_group.get(letter.group, letter.group[:LONGEST_NAME])
        if letter.destination is not None:
            return self._by_url.get(letter.destination, letter.destination[:LONGEST_NAME])
        return "-"

    def words_for(self, name: str) -> frozenset[str]:
        """Return the names, groups and URLs that `--subscription` may mean."""
        found = {name}
        for one in self._all:
            if name in (one.name, one.uid, one.group, one.url):
                found |= {one.name, one.group} | ({one.url} if one.url is not None else set())
        return frozenset(found)

    def to_post_to(self, name: str) -> tuple[str, DispatchOptions]:
        """Return the subscription with this name, uid, group or subscriberUri.

        Raises:
            ConfigError: no or several subscriptions match, or the channel does not dispatch.
        """
        found = [
            one
            for one in self._all
            if name in (one.name, one.uid, one.group, one.url)
            or (one.options is not None and name == one.options.subscriberUri)
        ]
        if not found:
            known = ", ".join(sorted(one.name for one in self._all if one.options is not None)) or "none"
            raise ConfigError(f"--to-subscription {name}: the configuration has no such subscription; it has {known}")
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise ConfigError(f"--to-subscription {name}: it means {names}; give one of these names")
        (one,) = found
        if one.options is None:
            raise ConfigError(
                f"--to-subscription {name}: channel {one.name} has the processor {one.processor}, and posts to no subscriber; "
                "redrive to its topic (--to original), or name a channel with `dispatch`"
            )
        return one.name, one.options


def _options(loaded: Loaded, name: str) -> DispatchOptions | None:
    processor = loaded.config.channels[name].processor
    if processor.type != "dispatch":
        return None
    options: DispatchOptions = loaded.validate(DispatchOptions, f"channels.{name}.processor.options", processor.options)
    return options
