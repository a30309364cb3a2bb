"""Answers the requests below /debug/pprof/."""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from urllib.parse import parse_qs

from inbound.clock import Clock
from inbound.config.secrets import hide
from inbound.http.server.page import Page, text
from inbound.http.server.server import Request
from inbound.observe.profiling.flame import flame_page
from inbound.observe.profiling.heap import Heap
from inbound.observe.profiling.profile import CONTENT_TYPE, Profile, encode
from inbound.observe.profiling.sampler import BUDGET, Order, Sampler
from inbound.observe.profiling.threads import ThreadSource, as_profile, grouped, one_by_one, stacks_of
from inbound.report.page import Cell, element, page, paragraphs, table
from inbound.runtime.patterns import glob

#: Seconds of a profile by default and at most; and looks per second.
SECONDS, MOST_SECONDS = 30, 300
HZ, MOST_HZ = 100, 1000
#: Characters of a pattern: the names of threads have a channel's name, and their work.
LONGEST_PATTERN = 256


class BadRequestError(ValueError):
    """A parameter cannot be used; the message says which values can."""


class Parameters:
    """The values of a query, each given once."""

    def __init__(self, query: str, allowed: Collection[str]) -> None:
        """Parse `query`; raises BadRequestError: a parameter is unknown, or given twice."""
        try:
            given = parse_qs(query, keep_blank_values=True, max_num_fields=20)
        except ValueError as error:
            raise BadRequestError(f"the query cannot be read: {error}") from None
        unknown = sorted(set(given) - set(allowed))
        if unknown:
            raise BadRequestError(f"{unknown[0][:40]}: unknown; allowed: {', '.join(sorted(allowed)) or 'nothing'}")
        if twice := [key for key, values in given.items() if len(values) > 1]:
            raise BadRequestError(f"{twice[0]}: given twice")
        self._values: Mapping[str, str] = {key: values[0] for key, values in given.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def whole(self, key: str, default: int, at_least: int, at_most: int) -> int:
        given = self._values.get(key)
        if given is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", given, re.ASCII) or not at_least <= int(given) <= at_most:
            raise BadRequestError(f"{key}: need a whole number from {at_least} to {at_most}, got {given[:40]!r}")
        return int(given)

    def one_of(self, key: str, allowed: Collection[str], default: str) -> str:
        given = self._values.get(key, default)
        if given not in allowed:
            raise BadRequestError(f"{key}: need one of {', '.join(allowed)}, got {given[:40]!r}")
        return given

    def pattern(self, key: str) -> re.Pattern[str]:
        """Return a pattern for whole names; by default all match.

        `*` is any text, `?` any character.
        """
        given = self._values.get(key, "*")
        if len(given) > LONGEST_PATTERN:
            raise BadRequestError(f"{key}: {len(given)} characters; a pattern has at most {LONGEST_PATTERN}")
        return glob(given)


def index_page(prefix: str, heading: str, tracing: bool) -> str:
    """Return the list of pages; `tracing`: allocations are traced now."""
    rows = (
        ("flame?seconds=10", "flame graph of 10 s", "Where the process spends its time, as a page.", _SAMPLING),
        ("profile?seconds=10", "CPU profile of 10 s", "The same as a file for go tool pprof.", _SAMPLING),
        (
            "goroutine?debug=2",
            "threads, one by one",
            "Where each thread is now, as text; debug=1: those at the same place together; without debug: for go tool pprof.",
            "thread=NAME, format=html",
        ),
        ("goroutine?format=html", "threads as a flame graph", "The same as a page.", "thread=NAME"),
        (
            "heap?seconds=10&format=html",
            "growth of memory in 10 s",
            "Traces allocations for so long, unless they are traced already; without format for go tool pprof.",
            f"seconds=1 to {MOST_SECONDS}, gc=1: collect garbage before",
        ),
        (
            "heap?format=html",
            "memory in use",
            f"What was allocated since tracing began. Allocations are {_TRACED if tracing else _NOT_TRACED}.",
            "gc=1, trace=off: trace no more",
        ),
        ("cmdline", "command line", "With a NUL between arguments, and without the values of settings.", ""),
    )
    cells: list[list[Cell | str]] = [
        [
            Cell(element("a", name, href=f"{prefix}{path}")),
            Cell(text),
            Cell(element("code", f"{prefix}{path.partition('?')[0]}")),
            more,
        ]
        for path, name, text, more in rows
    ]
    return page(
        heading,
        element("h1", heading),
        paragraphs("A CPU profile costs something only while it is taken, and only one is at a time. To look at one:"),
        element("p", element("code", f"go tool pprof -http=: 'http://HOST:PORT{prefix}profile?seconds={SECONDS}'")),
        table(("what", "in words", "path", "parameters"), cells, caption="What there is"),
    )


_TRACED = "traced now"
_NOT_TRACED = "not traced: this switches tracing on, and the process is much slower then"
_SAMPLING = f"seconds=1 to {MOST_SECONDS} ({SECONDS}), hz=1 to {MOST_HZ} ({HZ}), thread=NAME with * for anything"


PREFIX = "/debug/pprof/"
HTML = "text/html; charset=utf-8"
#: What makes `go tool pprof` show the text of an answer that is not 200.
_FOR_PPROF = ("X-Go-Pprof", "1")
_FORMATS = ("pprof", "html")
_TAKING = (
    "a CPU profile is being taken; only one is at a time: ask again when it is over, in at most "
    f"{MOST_SECONDS} s, or look at it on another process"
)
_SWITCHED_ON = (
    "allocations were not traced; they are from now on, which makes this process much slower: ask again when there is "
    "something to see, and end it with {prefix}heap?trace=off. `profiling: {{heap: true}}` traces from the start; "
    "{prefix}heap?seconds=30 traces for so long and shows what has grown."
)
_BEING_TAKEN = "a snapshot of the memory is being taken; only one is at a time: ask again when it is over"
_ENDING = "the process is stopping: it takes no more profiles; {prefix}goroutine?debug=2 says where its threads are"


class ProfilePages:
    """Takes profiles, and answers with them. Each request has a thread."""

    def __init__(self, clock: Clock, heap_frames: int, threads: ThreadSource | None = None) -> None:
        """`heap_frames` calls are kept of each allocation."""
        self._clock = clock
        self._threads = threads or ThreadSource()
        self._ending = threading.Event()
        self._taking = threading.Lock()
        self.heap = Heap(clock, heap_frames)
        self._pages: Mapping[str, Callable[[Request], Page]] = {
            "": self._index,
            "profile": self._profile,
            "flame": self._flame,
            "goroutine": self._goroutine,
            "heap": self._heap,
            "cmdline": self._cmdline,
        }

    def answer(self, request: Request) -> Page:
        """Return the page; blocks while a profile is taken."""
        path = request.path if request.path.endswith("/") else f"{request.path}/"
        if path not in ("/", PREFIX) and (not path.startswith(PREFIX) or path[len(PREFIX) : -1] not in self._pages):
            there = " ".join(f"{PREFIX}{name}" for name in self._pages)
            return self._refusal(HTTPStatus.NOT_FOUND, f"no such page; there are: {there}")
        if request.method != "GET":
            page = self._refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} is asked for by GET")
            return page.with_header("Allow", "GET")
        if path == "/" or request.path == PREFIX[:-1]:
            return text(HTTPStatus.FOUND, f"it is at {PREFIX}").with_header("Location", PREFIX)
        try:
            return self._pages[path[len(PREFIX) : -1]](request)
        except BadRequestError as error:
            return self._refusal(HTTPStatus.BAD_REQUEST, str(error))

    def interrupt(self) -> None:
        """End a running profile early, and take no more."""
        self._ending.set()

    # -- pages -------------------------------------------------------------------------------------------------------

    def _index(self, request: Request) -> Page:
        Parameters(request.query, ())
        return Page(HTTPStatus.OK, index_page(PREFIX, self._whose("profiles"), tracemalloc.is_tracing()).encode(), HTML)

    def _profile(self, request: Request) -> Page:
        given = Parameters(request.query, ("seconds", "hz", "thread", "format"))
        return self._sampled(request, given, given.one_of("format", _FORMATS, "pprof"))

    def _flame(self, request: Request) -> Page:
        return self._sampled(request, Parameters(request.query, ("seconds", "hz", "thread")), "html")

    def _sampled(self, request: Request, given: Parameters, form: str) -> Page:
        seconds = given.whole("seconds", SECONDS, 1, MOST_SECONDS)
        hz = given.whole("hz", HZ, 1, MOST_HZ)
        pattern = given.pattern("thread")
        names = sorted({known.name for known in self._threads.known().values()})
        if not any(map(pattern.fullmatch, names)):
            raise BadRequestError(f"thread: there is none of that name; there are: {', '.join(names)}")
        if self._ending.is_set():
            return self._refusal(HTTPStatus.SERVICE_UNAVAILABLE, _ENDING.format(prefix=PREFIX))
        if not self._taking.acquire(blocking=False):
            return self._refusal(HTTPStatus.CONFLICT, _TAKING)
        try:
            order = Order(
                seconds=seconds, hz=hz, end=self._ending, gone=request.gone, budget=None if "hz" in given else BUDGET,
                wanted=lambda name: pattern.fullmatch(name) is not None,
            )  # fmt: skip
            profile = Sampler(self._clock, self._threads).run(order)
        finally:
            self._taking.release()
        return self._shown(profile, form, "profile")

    def _goroutine(self, request: Request) -> Page:
        given = Parameters(request.query, ("debug", "thread", "format"))
        pattern = given.pattern("thread")
        stacks = stacks_of(self._threads, lambda name: pattern.fullmatch(name) is not None)
        match given.whole("debug", 0, 0, 2):
            case 1:
                return Page(HTTPStatus.OK, grouped(stacks).encode())
            case 2:
                return Page(HTTPStatus.OK, one_by_one(stacks).encode())
        profile = as_profile(stacks, int(self._clock.wall() * 1e9))
        return self._shown(profile, given.one_of("format", _FORMATS, "pprof"), "goroutine")

    def _heap(self, request: Request) -> Page:
        given = Parameters(request.query, ("seconds", "gc", "format", "trace"))
        form, collect = given.one_of("format", _FORMATS, "pprof"), given.whole("gc", 0, 0, 1) == 1
        seconds = given.whole("seconds", 0, 1, MOST_SECONDS) if "seconds" in given else None
        switch = given.one_of("trace", ("on", "off"), "on")
        if self._ending.is_set():
            return self._refusal(HTTPStatus.SERVICE_UNAVAILABLE, _ENDING.format(prefix=PREFIX))
        if not self.heap.lock.acquire(blocking=False):
            return self._refusal(HTTPStatus.CONFLICT, _BEING_TAKEN)
        try:
            if switch == "off":
                ended = self.heap.end()
                said = (
                    "allocations are not traced" if ended else "allocations are still traced: the user's code began to"
                )
                return text(HTTPStatus.OK, said)
            if seconds is not None:
                grown = self.heap.growth(seconds, collect, self._ending, request.gone)
                return self._shown(grown, form, "heap")
            if self.heap.begin():
                return self._refusal(HTTPStatus.SERVICE_UNAVAILABLE, _SWITCHED_ON.format(prefix=PREFIX))
            if collect:
                gc.collect()
            return self._shown(self.heap.now(), form, "heap")
        finally:
            self.heap.lock.release()

    def _cmdline(self, request: Request) -> Page:
        """Return the arguments, with NULs between them as in Go, without secrets."""
        Parameters(request.query, ())
        return Page(HTTPStatus.OK, "\0".join(_without_settings(sys.orig_argv)).encode("utf-8", "replace"))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _shown(self, profile: Profile | None, form: str, name: str) -> Page:
        if profile is None:  # the client has gone: this is not read
            return self._refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the client went away")
        if form == "html":
            return Page(HTTPStatus.OK, flame_page(profile, self._whose(profile.title)).encode(), HTML)
        page = Page(HTTPStatus.OK, encode(profile), CONTENT_TYPE)
        return page.with_header("Content-Disposition", f'attachment; filename="{name}.pb.gz"').with_header(
            "X-Content-Type-Options", "nosniff"
        )

    def _whose(self, what: str) -> str:
        return f"{what} of process {os.getpid()} on {socket.gethostname()}"

    def _refusal(self, code: int, message: str) -> Page:
        return text(code, message).with_header(*_FOR_PPROF)


def _without_settings(arguments: Sequence[str]) -> list[str]:
    """Return a command line without values of `--set` and known secrets."""
    found: list[str] = []
    for before, argument in pairwise(["", *arguments]):
        prefix = "--set=" if argument.startswith("--set=") else ""
        key, equals, _ = argument.removeprefix(prefix).partition("=")
        is_setting = equals and (prefix or before == "--set")
        found.append(hide(f"{prefix}{key}=..." if is_setting else argument))
    return found
