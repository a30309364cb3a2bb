"""Reads Knative's manifests: `KafkaChannel`s, `Subscription`s and `ResetOffset`s.

An unusable file, document, object of a `List` or subscriber of a channel does not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from inbound.config.document import Document, dotted, parse_each
from inbound.config.manifest_models import (
    ANNOTATION,
    KIND,
    RESET,
    SUBSCRIBERS,
    SUBSCRIPTION,
    ChannelManifest,
    KafkaChannel,
    Name,
    RefusedManifest,
    ResetManifest,
    ResetOffset,
    SubscriptionManifest,
)
from inbound.config.problems import problems_by_path
from inbound.config.units import shown
from inbound.config.values import WRITTEN

M = TypeVar("M", bound=BaseModel)

#: The kinds of objects that are read, with the prefixes of their versions.
_READ = {
    KIND: "messaging.knative.dev/",
    SUBSCRIPTION: "messaging.knative.dev/",
    RESET: "kafka.eventing.knative.dev/",
}
#: Other systems have this kind, too.
_ALSO_OF_OTHERS = frozenset({SUBSCRIPTION})
#: Kinds of Knative's that look like ours. A misspelled kind of ours is refused instead of ignored: its channel would end.
_OTHER_KINDS = ("Channel", "InMemoryChannel")
_LISTS = ("List", *(f"{kind}List" for kind in _READ))
_ITEM = re.compile(r"items\[\d{1,9}\](?=$|[.\[])")
_SUBSCRIBER = re.compile(r"spec\.(?:subscribable\.)?subscribers\[(\d{1,9})\]")
_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True)
class Manifests:
    """The objects of all files."""

    channels: tuple[ChannelManifest, ...]
    notes: tuple[str, ...]  # lines for people, about ignored objects
    subscriptions: tuple[SubscriptionManifest, ...] = ()
    #: In the order of the files; an unusable one has its problem.
    resets: tuple[ResetManifest, ...] = ()
    #: Unusable objects, except resets.
    refused: tuple[RefusedManifest, ...] = ()


def parse_manifests(files: Mapping[str, str]) -> Manifests:
    """Return the objects in `files`, also those in a `List`.

    `files` has each file's text by its name. An unusable object does not stop the others. Channels with the same name are all
    refused: nothing says which one is meant.
    """
    reading = _Reading()
    for filename, written in files.items():
        documents, problems = parse_each(written, filename)
        reading.unreadable(filename, problems)
        for document in documents:
            reading.read(document)
    return Manifests(
        tuple(reading.unique()),
        tuple(reading.notes),
        tuple(one for one in reading.subscriptions if one.metadata.deletionTimestamp is None),
        tuple(_once(reading.resets)),
        tuple(reading.refused),
    )


class _Reading:
    """Sorts the objects of documents by kind and usability."""

    def __init__(self) -> None:
        self.channels: list[ChannelManifest] = []
        self.subscriptions: list[SubscriptionManifest] = []
        self.resets: list[ResetManifest] = []
        self.refused: list[RefusedManifest] = []
        self.notes: list[str] = []

    def unreadable(self, filename: str, problems: list[str]) -> None:
        """Refuse the unreadable parts of a file."""
        for problem in problems:
            line = problem.removeprefix(f"{filename}:").partition(":")[0]
            where = f"{filename}:{line}" if line.isdigit() else filename
            self.refused.append(RefusedManifest(kind=None, file=filename, where=where, problem=problem))

    def read(self, document: Document) -> None:
        """Read each object of a document."""
        places, tree = document.places, document.tree
        if tree.get("kind") not in _LISTS or "items" not in tree:
            self._take(_Object(document, "", tree, document.found))
            return
        items = [] if tree["items"] is None else tree["items"]
        if not isinstance(items, list):
            line = f"{places.locate('items')}: items: need a list of objects, got {shown(items)}"
            self.unreadable(places.filename, [line])
            return
        found: dict[str, list[tuple[str, str]]] = {}
        for path, line in document.found:
            of_item = _ITEM.match(path)
            found.setdefault(of_item[0] if of_item else "", []).append((path, line))
        self.unreadable(places.filename, [line for _, line in found.get("", ())])
        for i, item in enumerate(items):
            path = dotted("items", i)
            problems = found.get(path, [])
            if isinstance(item, dict):
                self._take(_Object(document, path, item, problems))
            else:
                line = f"{places.locate(path)}: {path}: need an object, a mapping, got {shown(item)}"
                self.unreadable(places.filename, [line for _, line in problems] or [line])

    def _take(self, one: _Object) -> None:
        version = str(one.tree.get("apiVersion"))
        kind = one.tree.get("kind") if isinstance(one.tree.get("kind"), str) else None
        if kind not in _READ or (kind in _ALSO_OF_OTHERS and not version.startswith(_READ[kind])):
            if (meant := _meant(kind, version)) is not None:
                self._refuse(one, meant, [f"{one.locate('kind')}: {one.path('kind')}: need {meant}, got {shown(kind)}"])
            else:
                of = f" ({version[:100]})" if one.tree.get("apiVersion") else ""
                self.notes.append(f"{one.locate('kind')}: a {(kind or 'document without kind')[:100]}{of} is ignored")
        elif kind == RESET:
            self._reset(one)
        elif one.metadata.get("deletionTimestamp") is not None:  # deleted, and waiting for its finalizers
            return
        elif kind == SUBSCRIPTION:
            self._subscription(one)
        else:
            self._channel(one)

    def _refuse(
        self, one: _Object, kind: str, lines: list[str], path: str | None = None, uid: str | None = None
    ) -> None:
        namespace, name = _name(one.metadata.get("namespace", "default")), _name(one.metadata.get("name"))
        where = one.locate(path or "metadata.name")
        self.refused.append(
            RefusedManifest(
                kind=kind, file=one.document.places.filename, where=where, problem="\n".join(dict.fromkeys(lines)),
                namespace=namespace, name=name, path=path, uid=uid,
            )
        )  # fmt: skip

    def _subscription(self, one: _Object) -> None:
        if isinstance(metadata := one.tree.get("metadata"), dict) and "uid" not in metadata:
            where = f"{one.locate('metadata')}: {one.path('metadata.uid')}"
            self.notes.append(
                f"{where}: the cluster has not given it one yet, so no reset can name it; this Subscription is ignored"
            )
            return
        found, problems = one.checked(SubscriptionManifest)
        if found is None:
            self._refuse(one, SUBSCRIPTION, [line for _, line in problems])
        else:
            self.subscriptions.append(found)

    def _channel(self, one: _Object) -> None:
        """Add one channel, without its unusable subscribers."""
        channel, problems = one.checked(KafkaChannel)
        by_subscriber: dict[str, list[str]] = {}
        others = []
        for path, line in problems:
            found = _SUBSCRIBER.match(path.removeprefix(f"{one.prefix}." if one.prefix else ""))
            if found is None:
                others.append(line)
            else:
                by_subscriber.setdefault(found[0], []).append(line)
        left_out: dict[str, Any] = {}
        if by_subscriber and not others:
            rest = deepcopy(one.tree)
            for path in sorted(by_subscriber, key=lambda path: -int(_SUBSCRIBER.match(path)[1])):  # type: ignore[index]
                holder = rest["spec"] if path.startswith(SUBSCRIBERS) else rest["spec"]["subscribable"]
                left_out[path] = holder["subscribers"].pop(int(path[path.rindex("[") + 1 : -1]))
            try:
                channel = KafkaChannel.model_validate(rest, context=WRITTEN)
            except ValidationError:
                channel = None
        if channel is None or others:
            self._refuse(one, KIND, [line for _, line in problems])
            return
        for path, lines in by_subscriber.items():
            self._refuse(one, KIND, lines, path, _uid_of(left_out[path]))
        manifest = ChannelManifest(channel, one.document.places, one.prefix, left_out)
        self.channels.append(manifest)
        self._note_annotations(manifest)

    def _note_annotations(self, manifest: ChannelManifest) -> None:
        """Note the annotations for a subscriber that the channel does not have."""
        known = {*(one.uid for _, one in manifest.subscribers), *map(_uid_of, manifest.left_out.values())}
        for name in manifest.annotations():
            uid = name.partition(".")[2]
            if uid and uid not in known:
                where = manifest.at(f"metadata.annotations.{ANNOTATION}{name}")
                at = manifest.places.locate(where)
                self.notes.append(f"{at}: {where}: no subscriber has the uid {uid}; this is ignored")

    def _reset(self, one: _Object) -> None:
        where = one.locate("metadata.name")
        reset, problems = one.checked(ResetOffset)
        if reset is None:
            name = f"{one.metadata.get('namespace') or 'default'}/{one.metadata.get('name') or 'without name'}"
            self.resets.append(ResetManifest(name, where, None, "\n".join(line for _, line in problems)))
        elif reset.metadata.deletionTimestamp is None:
            self.resets.append(ResetManifest(f"{reset.metadata.namespace}/{reset.metadata.name}", where, reset))

    def unique(self) -> Iterator[ChannelManifest]:
        """Yield the channels with unique names, among unusable ones too; refuse others."""
        given: dict[str, list[str]] = {}
        for one in self.channels:
            given.setdefault(one.name, []).append(one.places.locate(one.at("metadata.name")))
        for bad in self.refused:
            if bad.path is None and bad.channel is not None:
                given.setdefault(bad.channel, []).append(bad.where)
        for one in self.channels:
            metadata, where = one.channel.metadata, one.places.locate(one.at("metadata.name"))
            other = next((at for at in given[one.name][:2] if at != where), None)
            if len(given[one.name]) == 1:
                yield one
                continue
            problem = f"{where}: metadata.name: {KIND} {one.name} is given twice, also in {other or where}; keep one"
            self.refused.append(
                RefusedManifest(
                    kind=KIND, file=one.places.filename, where=where, problem=problem,
                    namespace=metadata.namespace, name=metadata.name,
                )
            )  # fmt: skip


@dataclass(frozen=True)
class _Object:
    """One object of a document, as written."""

    document: Document
    prefix: str  # its dotted path; empty: the whole document
    tree: dict[str, Any]
    found: list[tuple[str, str]]  # the problems of its YAML: path and line

    def path(self, path: str) -> str:
        return f"{self.prefix}.{path}" if self.prefix else path

    def locate(self, path: str) -> str:
        return self.document.places.locate(self.path(path))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata as written; empty if they are not a mapping."""
        given = self.tree.get("metadata")
        return given if isinstance(given, dict) else {}

    def checked(self, model: type[M]) -> tuple[M | None, list[tuple[str, str]]]:
        """Return it as a `model`, or None; and problems as path, line."""
        document, places = self.document, self.document.places
        problems = list(self.found)
        try:
            found: M | None = model.model_validate(self.tree, context=WRITTEN)
        except ValidationError as error:
            found = None
            wrong = problems_by_path(error, self.prefix, places.locate, model=model, written=places.text.get)
            problems += [(path, line) for path, line in wrong if path not in document.bad]
        return (None if problems else found), problems


def _name(value: Any) -> str | None:
    try:
        return _NAME.validate_python(value)
    except ValidationError:
        return None


def _uid_of(subscriber: Any) -> str | None:
    return _name(subscriber.get("uid")) if isinstance(subscriber, dict) else None


def _meant(kind: Any, version: str) -> str | None:
    """Return our kind that a misspelled `kind` means; None: another one."""
    if not isinstance(kind, str) or kind in _OTHER_KINDS or not version.startswith(_READ[KIND]):
        return None
    near = get_close_matches(kind.lower(), [KIND.lower()], n=1, cutoff=0.8)
    return KIND if near else None


def _once(resets: list[ResetManifest]) -> Iterator[ResetManifest]:
    """Yield the resets; a second one with the same name becomes unusable."""
    first: dict[str, str] = {}
    for one in resets:
        other = first.setdefault(one.name, one.where)
        if other != one.where and one.problem is None:
            problem = f"{one.where}: metadata.name: {RESET} {one.name} is given twice, also in {other}; keep one"
            one = ResetManifest(one.name, one.where, None, problem)
        yield one
