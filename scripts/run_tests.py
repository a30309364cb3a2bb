"""Run the named stages (check, structure, unit, simulation, integration) and print one line that counts everything.

Stages that need no servers run one after the other, beside the stage that does; every stage of tests has two pytest
processes. With --all the tests marked `thorough` run too. All stages run, also after a failure; the output of each goes
to build/tests/STAGE.log and is shown when the stage has ended. Each tool of `check` counts as one test. Exit 1 if
anything failed or a stage ran no test.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from scripts import test_results
from scripts.test_results import Count

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "build" / "tests"
#: Tools that look at the source; each one's failure is one failed test.
TOOLS: dict[str, tuple[str, ...]] = {
    "ruff check": (sys.executable, "-m", "ruff", "check", "--quiet", "."),
    "ruff format": (sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."),
    "mypy --strict": (sys.executable, "-m", "mypy"),
    "audit": ("scripts/audit",),
    "docs site": (sys.executable, "-m", "scripts.docs_site"),
}
#: How a tool ends that found nothing wrong, and could not look at everything.
NOT_KNOWN = 75
#: What pytest is given for each stage of tests.
TESTS: dict[str, tuple[str, ...]] = {
    "structure": ("tests/repository/test_layers.py", "tests/repository/test_packaging.py"),
    "unit": ("tests", "--ignore=tests/simulation"),
    "simulation": ("tests/simulation",),
    "integration": ("integration",),
}
#: xdist gives each process one file after the other, in the order that tests/cli/two_processes.py says.
#: One that dies is not replaced: xdist would wait forever for what was given to it.
TWO_PROCESSES = (
    "-p", "tests.cli.two_processes", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "--max-worker-restart=0",
)  # fmt: skip
#: Stages with servers, which mostly wait. The others run beside them and leave them the processors.
WITH_SERVERS = ("integration",)
#: Seconds between two lines of progress, without a terminal and with one.
PROGRESS, PROGRESS_SEEN = 30.0, 1.0


@dataclass
class Stage:
    """One stage: its process while it runs, and what came of it."""

    name: str
    everything: bool = False
    count: Count = field(default_factory=Count)
    seconds: float = 0.0
    stopped: bool = False  # by Ctrl-C or SIGTERM: nothing is started any more
    _process: subprocess.Popen[bytes] | None = None
    _log: Path = OUTPUT
    _doing: str = ""

    def run(self) -> str:
        """Run to the end; return what there is to read. Blocks; one thread per stage."""
        began = time.monotonic()
        said = self._run_tools() if self.name == "check" else self._run_pytest()
        self.seconds = time.monotonic() - began
        return f"== {self.name}: {self.count} ({self.seconds:.0f} s)\n{said}".rstrip()

    def progress(self) -> str:
        """Return how far it is, such as `unit 45 %, 1 failed`; empty if it does not run. Any thread."""
        if self._process is None:
            return ""
        if self.name == "check":
            return f"check: {self._doing}"
        dots, percent, failed = test_results.progress_of(
            self._log.read_text(errors="replace") if self._log.is_file() else ""
        )
        how_far = f"{percent} %" if percent is not None else f"{dots} tests" if dots else "begins"
        return f"{self.name} {how_far}{f', {failed} FAILED' if failed else ''}"

    def stop(self) -> None:
        """Start nothing any more, and ask what runs to end. Any thread."""
        self.stopped = True
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    def _run_tools(self) -> str:
        said = []
        for title, command in TOOLS.items():
            if self.stopped:
                break
            self._doing = title
            began = time.monotonic()
            code, output = self._call("-".join(["check", *title.replace("-", " ").split()]), command)
            took = time.monotonic() - began
            failed = code not in (0, NOT_KNOWN)
            self.count += Count(failed=1) if failed else Count(passed=1)
            verdict = "FAILED" if failed else "ok as far as it could look" if code else "ok"
            said += ([output.rstrip()] if code else []) + [f"{title}: {verdict} ({took:.1f} s)"]
        return "\n".join(said)

    def _run_pytest(self) -> str:
        report = OUTPUT / f"{self.name}.xml"
        report.unlink(missing_ok=True)
        chosen = () if self.everything else ("-m", "not thorough")
        code, output = self._call(
            self.name,
            (
                sys.executable,
                "-u",
                "-m",
                "pytest",
                "-q",
                *TWO_PROCESSES,
                f"--junit-xml={report}",
                *chosen,
                *TESTS[self.name],
            ),
        )
        self.count = test_results.count(report)
        if self.stopped:
            return f"{self.name}: interrupted"
        # pytest can fail without a failed test: nothing collected, a bad option, an interrupt, a crash.
        if (code or not self.count.passed) and not self.count.failed:
            output += f"\n{self.name}: pytest ended with {code} after {self.count}, which counts as a failure"
            self.count += Count(failed=1)
        return test_results.without_dots(output)

    def _call(self, log: str, command: Sequence[str]) -> tuple[int, str]:
        """Run a command with its output in a file; return its exit code and the output."""
        self._log = OUTPUT / f"{log}.log"
        polite = [] if self.name in WITH_SERVERS else ["nice", "-n", "10"]
        with open(self._log, "wb") as file:
            self._process = subprocess.Popen(
                [*polite, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it once, through `stop`
            )  # fmt: skip
            if self.stopped:  # between the caller's look and now
                self.stop()
            code = self._process.wait()
        self._process = None
        return code, self._log.read_text(errors="replace")


def run(stages: Sequence[Stage]) -> None:
    """Run all stages, those with servers beside the others; print what they say as they end, and progress in between."""
    lanes = [[s for s in stages if (s.name in WITH_SERVERS) is with_servers] for with_servers in (False, True)]
    over = threading.Event()
    printing = threading.Lock()

    def run_lane(lane: Sequence[Stage]) -> None:
        for stage in lane:
            if stage.stopped:
                return
            said = stage.run()
            with printing:
                print(f"{_ERASE if _SEEN else ''}{said}", flush=True)

    def show_progress() -> None:
        began = time.monotonic()
        while not over.wait(PROGRESS_SEEN if _SEEN else PROGRESS):
            minutes, seconds = divmod(int(time.monotonic() - began), 60)
            line = f"{minutes:3}:{seconds:02}  " + "; ".join(filter(None, (stage.progress() for stage in stages)))
            with printing:
                print(f"{_ERASE}{line}" if _SEEN else line, end="" if _SEEN else "\n", flush=True)

    ticker = threading.Thread(target=show_progress, name="progress")
    ticker.start()
    try:
        with ThreadPoolExecutor(len(lanes)) as pool:
            try:
                for done in [pool.submit(run_lane, lane) for lane in lanes]:
                    done.result()
            except BaseException:
                for stage in stages:
                    stage.stop()
                raise
    finally:
        over.set()
        ticker.join()


_SEEN = sys.stdout.isatty()
_ERASE = "\r\x1b[K"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=["check", *TESTS], metavar="STAGE")
    parser.add_argument("--all", action="store_true", help="run also what is marked `thorough`")
    parser.add_argument(
        "--record", action="store_true", help=f"write the files' times to {test_results.DURATIONS.name}"
    )
    args = parser.parse_args()
    try:
        OUTPUT.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"cannot write to {OUTPUT}: {error.strerror}; remove what stands there, or make room", file=sys.stderr)
        return 2
    # End what runs, as by Ctrl-C. What is started inherits no ignored SIGINT, which shells give to what runs behind them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if "integration" in args.stages:
        subprocess.run([sys.executable, "-m", "scripts.browser"], cwd=ROOT, stdin=subprocess.DEVNULL)
    stages = [Stage(name, args.all) for name in args.stages]
    began = time.monotonic()
    run(stages)
    reports = [OUTPUT / f"{stage.name}.xml" for stage in stages if stage.name != "check"]
    if args.record:
        test_results.record(reports)
    print(test_results.slowest(reports))
    print(
        f"{(time.monotonic() - began) / 60:.1f} minutes on {os.cpu_count()} cores: "
        + ", ".join(f"{stage.name} {stage.seconds:.0f} s" for stage in stages)
    )
    total = sum((stage.count for stage in stages), Count())
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
