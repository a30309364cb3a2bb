"""Has the ResetOffset manifests of a configuration carried out while the process runs, each once in all processes."""

from __future__ import annotations

import logging
from dataclasses import replace

from inbound.config import ResetManifest
from inbound.controller.reset_offset import RefMapper, ResetCommand, read, submit
from inbound.controller.reset_offset.signals import Signal
from inbound.controller.reset_offset.targets import in_words
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ConfigError, ResetError, TransientError
from inbound.reset_manifests import command_of, name_of
from inbound.status import ManifestStatus

log = logging.getLogger(__name__)

#: How often it is looked how far a reset has come, and how soon after ZooKeeper did not answer. Seconds.
LOOK, RETRY = 2.0, 1.0
#: How long nothing is looked at where nothing is to be done; what changes wakes it.
IDLE = 600.0
#: Whoever reads the status of a reset that has been cleared away.
GONE = "carried out before, and cleared away"


class ManifestResets:
    """The manifests that a process knows. `learn` and `status` by any thread, `follow` on the controller's."""

    def __init__(self, mapper: RefMapper, by: str) -> None:
        """`mapper` finds what manifests name, as it is then. `by` says who submits, for people."""
        self._mapper = mapper
        self._by = by
        self._signals: tuple[Signal, ...] = ()
        self._manifests: tuple[ResetManifest, ...] = ()
        self._status: dict[str, ManifestStatus] = {}  # replaced as a whole
        self._told: dict[str, str] = {}

    def learn(self, manifests: tuple[ResetManifest, ...]) -> None:
        """Take over what the files say now. A manifest that is gone cancels nothing."""
        self._manifests = manifests
        for signal in self._signals:
            signal.set()

    def status(self) -> list[ManifestStatus]:
        """Return how each manifest stands, in the order of the files."""
        known = self._status
        return [known[one.name] for one in self._manifests if one.name in known]

    async def follow(self, zk: ZooKeeper) -> None:
        """Submit what is to be done, and see what becomes of it, on this connection; for good.

        Every process of a group does the same: the name of a manifest's reset is the same for all, and is taken once.
        """
        signal = Signal(zk.clock)
        self._signals += (signal,)
        submitted: set[str] = set()
        while True:
            try:
                more = await self._look(zk, submitted)
                wait = LOOK if more else IDLE
            except TransientError as error:
                log.debug("manifests of resets: %s", error)
                wait = RETRY
            await signal.wait(wait)

    async def _look(self, zk: ZooKeeper, submitted: set[str]) -> bool:
        """Look at each manifest. Returns whether one is to be looked at again soon."""
        manifests, mapper = self._manifests, self._mapper
        found: dict[str, ManifestStatus] = {}
        for manifest in manifests:
            before = self._status.get(manifest.name)
            if _is_over(manifest, before):
                found[manifest.name] = before  # type: ignore[assignment]  # over means that there is one
                continue
            found[manifest.name] = await self._see_to(zk, manifest, mapper, submitted)
            self._status = {**self._status, **found}
        self._status = found
        if manifests is not self._manifests:
            return True
        return any(not _is_over(one, found[one.name]) and one.reset is not None for one in manifests)

    async def _see_to(
        self, zk: ZooKeeper, manifest: ResetManifest, mapper: RefMapper, submitted: set[str]
    ) -> ManifestStatus:
        told = ManifestStatus(name=manifest.name, where=manifest.where)
        try:
            command = command_of(manifest, mapper, created=zk.clock.wall(), by=self._by)
        except ConfigError as error:
            return self._refused(replace(told, problem=str(error)))
        except ResetError as error:
            return self._refused(replace(told, problem=f"{manifest.where}: {error}"))
        told = replace(told, reset=command.name)
        try:
            if command.name not in submitted:
                if await submit(zk, command):
                    log.info("reset %s of %s is submitted: %s", command.name, manifest.where, in_words(command.spec))
                submitted.add(command.name)
            now = await read(zk, command.name)
        except (ResetError, BadNodeError) as error:
            return self._refused(replace(told, problem=str(error)))
        if now is None:
            return replace(told, state="gone", message=GONE)
        return replace(told, state=now.state.value, message=_message(now), finished=now.finished)

    def _refused(self, told: ManifestStatus) -> ManifestStatus:
        if self._told.get(told.name) != told.problem:
            self._told[told.name] = told.problem or ""
            log.error("the reset of %s does nothing: %s", told.where, told.problem)
        return told


def _is_over(manifest: ResetManifest, status: ManifestStatus | None) -> bool:
    """Whether nothing more can become of a manifest as it is now."""
    if status is None or manifest.reset is None:
        return False
    return status.reset == name_of(manifest.reset) and (status.finished or status.state == "gone")


def _message(command: ResetCommand) -> str:
    """Return what a reset waits for, or how it has ended."""
    said = [c for c in command.conditions if c.message]
    if command.finished:
        return next((c.message for c in said if c.type == "Succeeded"), "")
    return next((c.message for c in said if c.status != "True"), "")
