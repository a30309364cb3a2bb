"""docs/tutorial.md, from its first command to its last: each prints what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.embedded.ports import free_ports
from integration.docs_scenes import OWNER, shares
from tests.docs_blocks import Block, of_page
from tests.docs_printed import difference, normalised
from tests.docs_shell import Command, Shell, commands_of
from tests.waiting import until

pytestmark = pytest.mark.thorough(
    "one story of minutes with Spark at its end; make test parses its commands and has its processor and its test run"
)
#: For each step. Seconds.
PATIENCE = 120.0
#: Beside what `tests/docs_printed.py` makes equal.
PATTERNS = (
    (r"\(\S+ (\S+ \S+ )?s? ?ago\)", "(AGO)"),
    (r"\b\d+ times in a row, tried again in [\d.]+ m?s", "N times in a row, tried again soon"),
    (r"\b\d passed in [\d.]+s", "passed"),
    (r"(?m)^(publishing to|Spark:) .*$", ""),  # progress: as often as there is time for
    (r"(?m)^ +\w+: Unknown \(Waiting\): .*$", ""),  # a reset says whom it waits for after almost a second
    (r"took [\d.]+ s|after [\d.]+ s|in [\d.]+ s \([\d,]+/s\)", "TOOK"),
    (r"\(at \S*/", "(at FOLDER/"),
    (r"\S+/(servers|orders)\b", r"\1"),
    (r"'customer-(\d)': \d+", "SUM"),
    (r"(SUM(, )?)+", "SUMS"),
    (r"\(share [^)]*\)", "(share)"),  # who comes first may have all for a moment
    (r"\b\d+ +(?=\d{4}-\d\d-\d\d \d\d:)", "EPOCH "),  # and then claims were one more
    (r"\b(after joining the group|after \S+ (joined|left))", "after a change"),
    (r"(?<=\d\d:\d\d:\d\d),\d{3}\b", ""),
    (r"(?s)Last events:.*", ""),  # as many as there is time for
    (r"; \d+ records read ahead.*", ""),
    (r", since .*", ""),
)


class Reader:
    """A reader who types what the page says, in two terminals, and edits files with it."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder, environment={"INBOUND__ADMIN__LISTEN": f"127.0.0.1:{free_ports(1)[0]}"})
        self._runs = 0
        self._owner_of_3 = self._killed = ""

    def follow(self, block: Block) -> None:
        """Do what a block says.

        Raises:
            AssertionError: what comes of it is not what the page shows.
        """
        if block.language == "python":
            (self.shell.at / block.file).write_text(block.text)
            return
        for command in commands_of(block):
            where = f"{block}: `{command.typed}`"
            if command.typed.startswith("inbound run"):
                self._run(where, command)
            else:
                self._type(where, command)

    def _run(self, where: str, command: Command) -> None:
        """Start it in the second terminal, and wait until the lines that the page shows have come, in any order."""
        self.shell.end()  # Ctrl-C in the second terminal
        self._runs += 1
        log = self.shell.folder / f"run-{self._runs}.log"
        self.shell.begin(command.typed, log.name)
        wanted = set(normalised(equal(command.shown or ""))) - {"..."}
        until(
            lambda: wanted <= set(normalised(equal(log.read_text()))), PATIENCE, lambda: f"{where}: {log.read_text()}"
        )
        # One of the two can be slow to start: what is typed next is about both.
        self._look(where, lambda printed: shares(printed) == [2, 2])

    def _look(self, where: str, so: Callable[[str], bool]) -> None:
        """Look at the offsets until they are so: a person who reads on to the next command gives them the time."""
        shown = "inbound offsets show"
        until(lambda: so(self.shell.run(shown)[1]), PATIENCE, lambda: f"{where}: then {self.shell.run(shown)[1]}")

    def _type(self, where: str, command: Command) -> None:
        typed = command.typed
        if typed.startswith("kill -9"):
            self._killed = self._owner_of_3
            typed = f"kill -9 {self._killed.split('-')[-2]}"  # the page's number is another one's
        if typed.startswith("inbound spark"):
            self._look(where, lambda printed: ", lag 0\n" in printed)  # all that was moved back is read again
            self.shell.end()
        found: list[str | None] = []
        only_looks = typed.startswith(("inbound offsets show", "inbound explain"))  # until it is as shown

        def typed_it() -> bool:
            found[:] = [self._difference(typed, command)]
            return found == [None] or not only_looks

        until(typed_it, PATIENCE, lambda: f"{where}: {found[0]}")
        assert found == [None], f"{where}: {found[0]}"

    def _difference(self, typed: str, command: Command) -> str | None:
        code, printed = self.shell.run(typed)
        if code != (3 if typed.startswith("inbound explain") else 0):
            return f"ended with {code}:\n{printed}"
        if typed.startswith("inbound cluster up"):  # from now on these servers' addresses where the page has its own
            pattern = r"(?m)^(?:Kafka|ZooKeeper): +(\S+)$"
            pairs = zip(re.findall(pattern, command.shown or ""), re.findall(pattern, printed), strict=True)
            self.shell.instead = dict(pairs)
            printed = self.shell.there(printed)
        if owner := re.search(OWNER % 3, printed):
            self._owner_of_3 = owner[1]
        if typed.startswith("inbound offsets show"):
            # Before the dead one's session is over, and before its heir has its share, it looks the same but for the names.
            if self._killed and self._killed in printed:
                return f"{self._killed} was killed, and is still there:\n{printed}"
            if shares(printed) != shares(command.shown or ""):
                return f"the shares are others:\n{printed}"
        return difference(equal(command.shown or ""), equal(printed))


def equal(text: str) -> str:
    """Return a text without what differs from run to run, and is not made equal for all pages."""
    for pattern, name in PATTERNS:
        text = re.sub(pattern, name, text)
    return text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path)
    yield one
    one.shell.close()
    one.shell.at = tmp_path
    one.shell.run("inbound cluster down --dir servers")  # where the story did not come to its end


@pytest.mark.timeout(1200)
def test_the_tutorial_can_be_followed(reader: Reader) -> None:
    """Each command does, and prints, what the page says; the last ones prove that nothing was lost."""
    for block in of_page("docs/tutorial.md"):
        reader.follow(block)
