"""Reads Knative's manifests: `KafkaChannel`s, which are channels of ours, and what has to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from inbound.config.document import Document, dotted, parse_all
from inbound.config.kafka_channel import KIND, KafkaChannel, Manifest
from inbound.config.problems import validation_problems
from inbound.config.reset_offset import RESET, SUBSCRIPTION, ResetManifest, ResetOffset, Subscription
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

#: Which of the objects in a file are read, by kind, and what their versions begin with.
_READ = {
    KIND: "messaging.knative.dev/",
    SUBSCRIPTION: "messaging.knative.dev/",
    RESET: "kafka.eventing.knative.dev/",
}


@dataclass(frozen=True)
class Manifests:
    """What the files hold."""

    channels: tuple[Manifest, ...]
    notes: tuple[str, ...]  # what was left out, for people
    subscriptions: tuple[Subscription, ...] = ()
    #: In the order of the files; those that cannot be used say why.
    resets: tuple[ResetManifest, ...] = ()


def parse_manifests(files: Mapping[str, str]) -> Manifests:
    """Return the objects in `files`: the text of each by its name. A `List` of objects is looked into.

    A `ResetOffset` or `Subscription` that cannot be used does not keep the others from it: the one says so itself, the other
    is left out with a note.

    Raises:
        ConfigError: a line for each problem of the channels, with file and line.
    """
    reading = _Reading()
    for filename, written in files.items():
        try:
            documents = parse_all(written, filename)
        except ConfigError as error:
            reading.problems.append(str(error))
            continue
        for document in documents:
            for prefix, tree in _objects(document):
                reading.take(document, prefix, tree)
    reading.problems += _twice(reading.channels)
    if reading.problems:
        raise ConfigError("\n".join(reading.problems))
    return Manifests(
        tuple(m for m in reading.channels if m.channel.metadata.deletionTimestamp is None),
        tuple(reading.notes),
        tuple(one for one in reading.subscriptions if one.metadata.deletionTimestamp is None),
        tuple(_once(reading.resets)),
    )


class _Reading:
    """One walk over the objects."""

    def __init__(self) -> None:
        self.channels: list[Manifest] = []
        self.subscriptions: list[Subscription] = []
        self.resets: list[ResetManifest] = []
        self.problems: list[str] = []
        self.notes: list[str] = []

    def take(self, document: Document, prefix: str, tree: dict[str, Any]) -> None:
        """Take one object for what it is."""
        kind, version = tree.get("kind"), tree.get("apiVersion")
        if kind not in _READ or not str(version).startswith(_READ[kind]):
            where = document.places.locate(f"{prefix}.kind" if prefix else "kind")
            of = f" ({version})" if version else ""
            self.notes.append(f"{where}: a {kind or 'document without kind'}{of} is ignored")
        elif kind == RESET:
            self._reset(document, prefix, tree)
        elif kind == SUBSCRIPTION:
            try:
                self.subscriptions.append(_checked(Subscription, document, prefix, tree))
            except ConfigError as error:
                self.notes.append(f"{error}; this {SUBSCRIPTION} is ignored")
        else:
            try:
                channel = _checked(KafkaChannel, document, prefix, tree)
                self.channels.append(Manifest(channel, document.places, prefix))
            except ConfigError as error:
                self.problems.append(str(error))

    def _reset(self, document: Document, prefix: str, tree: dict[str, Any]) -> None:
        where = document.places.locate(f"{prefix}.metadata.name" if prefix else "metadata.name")
        try:
            reset = _checked(ResetOffset, document, prefix, tree)
        except ConfigError as error:
            metadata = tree.get("metadata")
            given = metadata if isinstance(metadata, dict) else {}
            name = f"{given.get('namespace') or 'default'}/{given.get('name') or 'without name'}"
            self.resets.append(ResetManifest(name, where, None, str(error)))
            return
        if reset.metadata.deletionTimestamp is None:
            self.resets.append(ResetManifest(f"{reset.metadata.namespace}/{reset.metadata.name}", where, reset))


def _objects(document: Document) -> list[tuple[str, dict[str, Any]]]:
    items = document.tree.get("items")
    lists = ("List", *(f"{kind}List" for kind in _READ))
    if document.tree.get("kind") not in lists or not isinstance(items, list):
        return [("", document.tree)]
    return [(dotted("items", i), item) for i, item in enumerate(items) if isinstance(item, dict)]


def _checked(model: type[M], document: Document, prefix: str, tree: dict[str, Any]) -> M:
    """Return one object as its model.

    Raises:
        ConfigError: a line for each problem, with file and line.
    """
    places = document.places
    problems = list(document.problems)
    try:
        found = model.model_validate(tree, context=WRITTEN)
    except ValidationError as error:
        lines = validation_problems(error, prefix, places.locate, model=model, written=places.written)
        problems += [line for line in lines if not any(f": {path}: " in line for path in document.bad)]
        raise ConfigError("\n".join(problems)) from None
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def _twice(manifests: list[Manifest]) -> list[str]:
    problems, first = [], dict[str, str]()
    for manifest in manifests:
        where = manifest.places.locate(manifest.at("metadata.name"))
        other = first.setdefault(manifest.name, where)
        if other != where:
            problems.append(f"{where}: metadata.name: {KIND} {manifest.name} is given twice, also in {other}; keep one")
    return problems


def _once(resets: list[ResetManifest]) -> list[ResetManifest]:
    """Return the resets; of two with one name the second one does nothing, and says so."""
    found: list[ResetManifest] = []
    first: dict[str, str] = {}
    for one in resets:
        other = first.setdefault(one.name, one.where)
        if other != one.where and one.problem is None:
            problem = f"{one.where}: metadata.name: {RESET} {one.name} is given twice, also in {other}; keep one"
            one = ResetManifest(one.name, one.where, None, problem)
        found.append(one)
    return found
