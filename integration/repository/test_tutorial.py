"""docs/tutorial.md, from its first command to its last: each prints what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from inbound.embedded.cluster import free_ports
from integration.repository.docs_scenes import OWNER, shares
from tests.repository.docs_blocks import of_page
from tests.repository.docs_shell import Command, Shell, difference, normalised, replaced
from tests.waiting import Deadline, until

pytestmark = pytest.mark.thorough(
    "one story of minutes with Spark at its end; make test parses its commands and has its processor and its test run"
)
#: For each step. Seconds.
PATIENCE = 120.0
#: Beside what `tests/repository/docs_shell.py` makes equal.
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


class Reader(Shell):
    """A reader who types what the page says, in two terminals."""

    owner = killed = ""  # of partition 3; the one that was killed

    def carry_out(self, command: Command) -> None:
        """Type a command. What only looks is typed until it shows what the page shows: a reader takes time to get there."""
        typed = command.typed
        if typed.startswith("kill"):
            self.killed, typed = (
                self.owner,
                f"kill -9 {self.owner.split('-')[-2]}",
            )  # the page's number is another one's
        if typed.startswith("inbound spark"):
            self._look(lambda printed: ", lag 0\n" in printed)  # all that was moved back is read again
        if typed.startswith(("inbound run", "inbound spark")):
            self.end()  # Ctrl-C in the second terminal
        if typed.startswith("inbound run"):
            self._start(command)
            return
        deadline = Deadline(PATIENCE)
        while found := self._difference(typed, command.shown or ""):
            only_looks = typed.startswith(("inbound offsets show", "inbound explain"))
            assert only_looks, found
            assert not deadline.passed(), found

    def _start(self, command: Command) -> None:
        """Start it in the second terminal, and wait until the lines that the page shows have come, in any order."""
        log = self.folder / "running.log"
        log.unlink(missing_ok=True)
        self.begin(command.typed)
        wanted = set(normalised(equal(command.shown or ""))) - {"..."}
        until(lambda: wanted <= set(normalised(equal(log.read_text()))), PATIENCE, log.read_text)
        self._look(lambda printed: shares(printed) == [2, 2])  # one of the two can be slow to start

    def _look(self, so: Callable[[str], bool]) -> None:
        shown = "inbound offsets show"
        until(lambda: so(self.run(shown)[1]), PATIENCE, lambda: self.run(shown)[1])

    def _difference(self, typed: str, shown: str) -> str | None:
        code, printed = self.run(typed)
        if code != (3 if typed.startswith("inbound explain") else 0):
            return f"ended with {code}:\n{printed}"
        if typed.startswith("inbound cluster up"):  # from now on these servers' addresses where the page has its own
            pattern = r"(?m)^(?:Kafka|ZooKeeper): +(\S+)$"
            self.instead = dict(zip(re.findall(pattern, shown), re.findall(pattern, printed), strict=True))
            shown = replaced(shown, self.instead)
        if owner := re.search(OWNER % 3, printed):
            self.owner = owner[1]
        if typed.startswith("inbound offsets show"):
            # Before the dead one's session is over, and before its heir has its share, it looks the same but for the names.
            if self.killed and self.killed in printed:
                return f"{self.killed} was killed, and is still there:\n{printed}"
            if shares(printed) != shares(shown):
                return f"the shares are others:\n{printed}"
        return difference(equal(shown), equal(printed))


def equal(text: str) -> str:
    """Return a text without what differs from run to run, and is not made equal for all pages."""
    for pattern, name in PATTERNS:
        text = re.sub(pattern, name, text)
    return text


@pytest.mark.timeout(1200)
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    """Each command does, and prints, what the page says; the last ones prove that nothing was lost."""
    reader = Reader(tmp_path, environment={"INBOUND__ADMIN__LISTEN": f"127.0.0.1:{free_ports(1)[0]}"})
    try:
        for block in of_page("docs/tutorial.md"):
            if block.language == "python":
                (reader.at / block.file).write_text(block.text)
            else:
                reader.follow(block)
    finally:
        reader.close()
        reader.at = tmp_path
        reader.run("inbound cluster down --dir servers")  # where the story did not come to its end
