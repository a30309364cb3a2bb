"""What is answered below /debug/pprof/."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from inbound.clock import Clock
from inbound.config.known_secrets import hide
from inbound.http.pages import Page, text
from inbound.http.server import Request
from inbound.profiling import dump
from inbound.profiling.flame import flame_page
from inbound.profiling.heap import Heap
from inbound.profiling.index import index_page
from inbound.profiling.pace import BUDGET
from inbound.profiling.parameters import HZ, MOST_HZ, MOST_SECONDS, SECONDS, BadRequestError, Parameters
from inbound.profiling.pprof import CONTENT_TYPE, encode
from inbound.profiling.profile import Profile
from inbound.profiling.sampler import Order, Sampler
from inbound.profiling.threads import SystemThreads, Threads

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


class Answers:
    """Takes profiles and says what came of it. Any thread; each request in its own."""

    def __init__(self, clock: Clock, heap_frames: int, threads: Threads | None = None) -> None:
        """`heap_frames`: how many calls are kept of each allocation."""
        self._clock = clock
        self._threads = threads or SystemThreads()
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
        """Return the answer, however long taking the profile takes."""
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
        """End what is being taken, with what there is, and take no more: the process is to end. May be called twice."""
        self._ending.set()

    # -- pages -------------------------------------------------------------------------------------------------------

    def _index(self, request: Request) -> Page:
        Parameters(request.query, ())
        return Page(HTTPStatus.OK, index_page(PREFIX, self._whose("profiles"), self.heap.tracing).encode(), HTML)

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
        stood = dump.taken(self._threads, lambda name: pattern.fullmatch(name) is not None)
        match given.whole("debug", 0, 0, 2):
            case 1:
                return Page(HTTPStatus.OK, dump.grouped(stood).encode())
            case 2:
                return Page(HTTPStatus.OK, dump.one_by_one(stood).encode())
        profile = dump.as_profile(stood, int(self._clock.wall() * 1e9))
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
                said = "allocations are not traced" if ended else "allocations are traced on: somebody else began to"
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
        """As Go answers it: a NUL between two arguments. A setting may be a password."""
        Parameters(request.query, ())
        return Page(HTTPStatus.OK, "\0".join(_without_settings(sys.orig_argv)).encode("utf-8", "replace"))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _shown(self, profile: Profile | None, form: str, name: str) -> Page:
        if profile is None:  # nobody reads this
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
    """Return a command line without the values of `--set`, and without what is known to be secret."""
    found: list[str] = []
    for argument in arguments:
        key, equals, _ = argument.removeprefix("--set=").partition("=")
        is_setting = (found and found[-1] == "--set") or argument.startswith("--set=")
        if is_setting and equals:
            prefix = "--set=" if argument.startswith("--set=") else ""
            argument = f"{prefix}{key}=..."
        found.append(hide(argument))
    return found
