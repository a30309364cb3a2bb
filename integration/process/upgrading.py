"""Two versions of inbound beside each other: the previous release and this work tree, each installed as users install it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integration.harness import PLUGINS, Scene, Scenes
from integration.repository.installing import (
    Environment,
    build,
    clean_environment,
    copy_work_tree,
    export,
    previous_release,
)
from tests.waiting import until

#: What counts as the previous release as long as no tag names one: the state before users' processors, dispatcher,
#: subscriptions, resets, explanations and Spark jobs were added.
BEFORE_ANY_TAG = "ee3b2309011c92ec4d58183c466597371a725b1d"
#: Consumers are not to lose their session because the machine is busy. Seconds.
SESSION = 15.0

MakeScene = Callable[..., "MixedScene"]


@dataclass(frozen=True)
class Release:
    """A version of inbound in an environment of its own."""

    name: str
    environment: Environment

    def inbound(self, *arguments: str, within: Path) -> str:
        """Run its command line. Returns its output."""
        return self.environment.run("inbound", *arguments, within=within)


@dataclass(frozen=True)
class Releases:
    """The two that meet."""

    previous: Release
    current: Release


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Releases:
    """The previous release, and this work tree; each as a wheel in an environment of its own."""
    folder = tmp_path_factory.mktemp("releases")
    wheel = build("wheel", copy_work_tree(folder / "tree"), folder / "current")
    name = previous_release(BEFORE_ANY_TAG)
    tree = export(name, folder / "previous-tree")
    if tree is None:
        _say(request, f"this clone does not have {name}: a rolling restart of this version stands for the upgrade")
        name = "this version"
    else:
        _say(request, f"upgrade from {name}")
    earlier = wheel if tree is None else build("wheel", tree, folder / "previous")
    return Releases(
        Release(name, clean_environment(folder / "previous-venv", earlier)),
        # With pyarrow: ledger files that are ended become Parquet, and those of the others are not ended.
        Release("work tree", clean_environment(folder / "current-venv", wheel, "pyarrow")),
    )


def _say(request: pytest.FixtureRequest, text: str) -> None:
    """Print although pytest keeps what tests print: what was tested is not the same without a previous release."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        print(f"\n{text}", flush=True)


@dataclass
class MixedScene(Scene):
    """A scene whose consumers are of different releases."""

    session: float = SESSION
    _watching: threading.Thread | None = None
    _stop_watching: threading.Event = field(default_factory=threading.Event)
    #: Per partition: each value of the group's offset that was seen, in the order in which it was seen.
    commits: dict[int, list[int]] = field(default_factory=dict)

    def write_config(self, **channel: str) -> None:
        """Write a configuration that both releases understand."""
        super().write_config(**channel)
        self.config.write_text(self.config.read_text().replace("recorder:Recorder", "telling:Telling"))

    def start_of(self, release: Release, **variables: str) -> subprocess.Popen[bytes]:
        """Start a consumer of a release, away from the checkout, with these environment variables besides."""
        variables = release.environment.variables() | {"PYTHONPATH": str(PLUGINS)} | variables
        with open(self.folder / f"consumer-{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [release.environment.python, "-m", "inbound", "run", "-c", str(self.config)],
                stderr=log,
                env=variables,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def runs(self, process: subprocess.Popen[bytes], release: Release) -> bool:
        """Whether a process has opened its processor, with the inbound of that release."""
        said = self.seen_folder / f"{process.pid}.from"
        return said.exists() and Path(said.read_text()).is_relative_to(release.environment.folder)

    def wait_until_shared(self, *running: tuple[subprocess.Popen[bytes], Release]) -> None:
        """Wait until these processes, and no others, share the partitions evenly, each of the release that it should be."""
        processes = [process for process, _ in running]
        until(lambda: self.owned_by(processes), 120, lambda: f"they share the topic: {self.owners()} {self.ends()}")
        assert [release.name for process, release in running if not self.runs(process, release)] == []

    def ends(self) -> str:
        """Return the ends of all logs, for failures."""
        return "\n".join(f"--- {process.pid}\n{self.log(process)[-2000:]}" for process in self.processes)

    def no_traceback(self) -> bool:
        """Whether nothing that ran has logged a traceback."""
        return not any("Traceback" in self.log(process) for process in self.processes)

    def watch_commits(self) -> None:
        """Look at the group's offsets many times a second from now on, until `close`."""

        def run() -> None:
            while not self._stop_watching.wait(0.03):
                for partition in range(self.partitions):
                    offset = self.offset(partition)
                    seen = self.commits.setdefault(partition, [])
                    if offset is not None and (not seen or seen[-1] != offset):
                        seen.append(offset)

        self._watching = threading.Thread(target=run, name="commits")
        self._watching.start()

    def commits_that_went_back(self) -> dict[int, list[int]]:
        """End the watch; return the partitions in which a later look saw a smaller offset, with all that was seen."""
        self._end_watch()
        return {partition: seen for partition, seen in self.commits.items() if seen != sorted(seen)}

    def close(self) -> None:
        """End all that still run."""
        self._end_watch()
        super().close()

    def _end_watch(self) -> None:
        self._stop_watching.set()
        if self._watching is not None:
            self._watching.join(timeout=60)
            self._watching = None


@dataclass(frozen=True)
class LedgerFacts:
    """What the ledgers of all consumers say."""

    damaged: int  # lines and ends of lines that cannot be read
    numbers_missing: int  # of the lines that each run has counted
    landed: dict[int, int]  # partition: to which offset commits have landed


#: Run by any release on a ledger's folder: prints what `LedgerFacts` holds.
READ_LEDGER = """
import json, sys
from pathlib import Path
from inbound.ledger import Entry, read_directory
damaged, numbers, landed = 0, {}, {}
for item in read_directory(Path(sys.argv[1])):
    if not isinstance(item, Entry):
        damaged += 1
    elif item.kind not in ("header", "end"):
        numbers.setdefault(item.run, set()).add(item.seq)
        if item.kind == "settled" and item.outcome == "landed":
            landed[item.partition] = max(item.commit, landed.get(item.partition, 0))
print(json.dumps([damaged, sum(max(of_run) - len(of_run) for of_run in numbers.values()), landed]))
"""


def ledger_facts(s: MixedScene, reader: Release) -> LedgerFacts:
    """Return what a release reads in the ledgers that the consumers of a scene wrote, of any release."""
    said = reader.environment.run("python", "-c", READ_LEDGER, s.folder / "ledger", within=s.folder)
    damaged, missing, landed = json.loads(said)
    return LedgerFacts(damaged, missing, {int(partition): offset for partition, offset in landed.items()})


@pytest.fixture
def mixed_scene(scenes: Scenes) -> MakeScene:
    """Make scenes of several releases on the shared cluster; end what they started."""
    return lambda **settings: scenes(MixedScene, **{"session": SESSION, **settings})
