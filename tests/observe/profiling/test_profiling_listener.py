"""The listener of profiles: its pages, its access rights, and its refusals."""

from __future__ import annotations

import base64
import logging
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.run.run import profiling_listener
from inbound.clock import Flag
from inbound.config import AdminTlsConfig, Config, ProfilingConfig, load
from inbound.errors import ConfigError
from inbound.observe.profiling.listener import ProfilingListener, port_of
from inbound.process.sections import Profiles
from inbound.testing import ManualClock
from tests.admin.test_admin_tls import CA, CLIENT, SERVER, trusting
from tests.observe.profiling.made_threads import allocate
from tests.observe.profiling.pprof_message import read, samples
from tests.observe.status.made_status import ask, send
from tests.waiting import wait_for

Make = Callable[..., ProfilingListener]
#: The headers of a page that a person looks at, and of a page of another site.
HERE = {"User-Agent": "Mozilla/5.0", "Sec-Fetch-Site": "none"}
ELSEWHERE = {"User-Agent": "Mozilla/5.0", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def make() -> Iterator[Make]:
    """Start a listener, on a clock on which a profile takes no time; it is closed after the test."""
    with ExitStack() as open_now:

        def start(
            token: str | None = None, host: str = "127.0.0.1", clock: ManualClock | None = None, **config: Any
        ) -> ProfilingListener:
            listener = ProfilingListener(
                ProfilingConfig(listen=f"{host}:0", **config), token=None if token is None else lambda: token,
                clock=clock or ManualClock(),
            )  # fmt: skip
            open_now.callback(listener.close)
            listener.start()
            return listener

        yield start


def fetch(listener: ProfilingListener, path: str, **headers: str) -> tuple[int, bytes]:
    """Return status and body of what is below /debug/pprof/."""
    answer = ask(listener.url, f"/debug/pprof/{path}", **headers)
    return answer.code, answer.body


def test_a_profile_is_what_pprof_reads(make: Make) -> None:
    """Of the threads of this process, each with its name; not of the one that takes it."""
    code, body = fetch(make(), "profile?seconds=2&hz=50")

    message = read(body)
    assert (code, message.duration_nanos, message.period) == (200, 2_000_000_000, 20_000_000)
    threads = {dict(labels)["thread"] for _, labels in samples(message)}
    assert {"MainThread", "profiling"} <= threads
    assert "profiling-c" not in threads


def test_only_the_threads_that_are_named(make: Make) -> None:
    """`*` stands for anything; where there is no such thread, those that there are are listed."""
    listener = make()
    _, body = fetch(listener, "profile?seconds=1&thread=Main*")
    assert {dict(labels)["thread"] for _, labels in samples(read(body))} == {"MainThread"}
    code, body = fetch(listener, "profile?seconds=1&thread=orders-*")
    assert (code, body.startswith(b"thread: there is none of that name; there are: ")) == (400, True)
    assert b"MainThread" in body


def test_a_flame_graph_is_a_page(make: Make) -> None:
    """By its own path, or as another form of each profile."""
    listener = make()
    for path in ("flame?seconds=1", "profile?seconds=1&format=html", "goroutine?format=html"):
        answer = ask(listener.url, f"/debug/pprof/{path}")
        assert (answer.code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "MainThread" in answer.text


def test_threads_are_told_as_text_and_as_a_profile(make: Make) -> None:
    """Where each is now; those at the same place together, and those of one name there are counted."""
    listener, end = make(), threading.Event()
    waiting = [threading.Thread(target=end.wait, args=(60,), name=f"audit-worker-{i}") for i in range(2)]
    waiting += [threading.Thread(target=end.wait, args=(60,), name="billing-worker-0") for _ in range(2)]
    for thread in waiting:
        thread.start()
    try:
        said = fetch(listener, "goroutine?debug=1&thread=audit-*")[1].decode()
        each = fetch(listener, "goroutine?debug=2&thread=audit-*")[1].decode()
        code, body = fetch(listener, "goroutine")
    finally:
        end.set()
        for thread in waiting:
            thread.join()
    names = {thread.name for thread in waiting}
    head, group, *_ = said.split("\n\n")
    assert head == "threads profile: total 2"
    assert group.splitlines()[0] == "2 @ audit-worker-0, audit-worker-1"
    assert "#\tthreading.Event.wait\t" in group
    assert each.count("\n\n") == 1
    assert each.startswith('thread "audit-worker-0" [')
    assert f"system thread {waiting[1].native_id}]:\nthreading.Condition.wait(...)\n\t" in each
    message = read(body)
    found = samples(message)
    assert code == 200
    counts = {name: value for (_, labels), (value,) in found.items() if (name := dict(labels)["thread"]) in names}
    assert counts == {"audit-worker-0": 1, "audit-worker-1": 1, "billing-worker-0": 2}
    assert {dict(labels).get("channel") for _, labels in found} == {None, "audit", "billing"}


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("profile?seconds=0", 400, "seconds: need a whole number from 1 to 300, got '0'\n"),
        ("profile?seconds=301", 400, "seconds: need a whole number from 1 to 300, got '301'\n"),
        ("profile?seconds=1e3", 400, "seconds: need a whole number from 1 to 300, got '1e3'\n"),
        ("profile?seconds=-1", 400, "seconds: need a whole number from 1 to 300, got '-1'\n"),
        ("profile?seconds=", 400, "seconds: need a whole number from 1 to 300, got ''\n"),
        (f"profile?seconds={'9' * 5000}", 400, f"seconds: need a whole number from 1 to 300, got '{'9' * 40}'\n"),
        ("profile?hz=1001", 400, "hz: need a whole number from 1 to 1000, got '1001'\n"),
        ("profile?format=svg", 400, "format: need one of pprof, html, got 'svg'\n"),
        ("profile?second=1", 400, "second: unknown; allowed: format, hz, seconds, thread\n"),
        ("profile?seconds=1&seconds=2", 400, "seconds: given twice\n"),
        (f"profile?{'a=1&' * 30}", 400, "the query cannot be read: Max number of fields exceeded\n"),
        (f"goroutine?thread={'[' * 257}", 400, "thread: 257 characters; a pattern has at most 256\n"),
        ("goroutine?debug=3", 400, "debug: need a whole number from 0 to 2, got '3'\n"),
        ("heap?trace=maybe", 400, "trace: need one of on, off, got 'maybe'\n"),
        ("cmdline?x=1", 400, "x: unknown; allowed: nothing\n"),
        ("cmdline?a%0d%0aX-Injected:%20yes=1", 400, "a??X-Injected: yes: unknown; allowed: nothing\n"),
        (
            "mutex",
            404,
            "no such page; there are: /debug/pprof/ /debug/pprof/profile /debug/pprof/flame /debug/pprof/goroutine "
            "/debug/pprof/heap /debug/pprof/cmdline\n",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(make: Make, path: str, code: int, said: str) -> None:
    """And in a way that `go tool pprof` shows the words."""
    answer = ask(make().url, f"/debug/pprof/{path}")
    assert (answer.code, answer.text) == (code, said)
    assert answer.headers["X-Go-Pprof"] == "1"


def test_profiles_are_asked_for_by_get(make: Make) -> None:
    """Also not by HEAD, which would take an unread one; `/` redirects to the list of pages."""
    url = make().url
    for method in ("POST", "HEAD"):
        answer = ask(url, "/debug/pprof/profile?seconds=1", method)
        assert (answer.code, answer.headers["Allow"]) == (405, "GET")
    for path in ("/", "/debug/pprof"):
        assert (ask(url, path).code, ask(url, path).headers["Location"]) == (302, "/debug/pprof/")
    index = ask(url, "/debug/pprof/").text
    assert "/debug/pprof/flame?seconds=10" in index
    assert "Allocations are not traced" in index


class Stopped(ManualClock):
    """Time goes on only when a test advances it: a waiting thread announces itself, and waits until its event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = threading.Event()

    def wait(self, event: Flag, seconds: float | None) -> bool:
        self.waited.set()
        return event.wait(60)


@pytest.mark.parametrize("closed", [False, True])
def test_a_second_profile_at_once_is_refused_and_the_end_of_the_process_ends_the_first(
    make: Make, closed: bool
) -> None:
    """The first one is answered with what there is; until the close no other is taken, while threads can be looked at."""
    clock = Stopped()
    listener = make(clock=clock)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fetch, listener, "profile?seconds=300")
        wait_for(clock.waited, 60, "the profile does not begin")
        code, body = fetch(listener, "flame?seconds=1")
        assert (code, body.decode().partition(";")[0]) == (409, "a CPU profile is being taken")

        if closed:
            listener.close()
        else:
            listener.interrupt()

        assert first.result(60)[0] == 200
    if not closed:
        for path in ("profile", "heap"):
            code, body = fetch(listener, path)
            assert (code, body.decode().partition(":")[0]) == (503, "the process is stopping")
        assert fetch(listener, "goroutine")[0] == 200


@pytest.mark.parametrize(
    ("token", "host", "headers", "code"),
    [
        (None, "127.0.0.1", {}, 200),
        (None, "127.0.0.1", HERE, 200),
        (None, "127.0.0.1", ELSEWHERE, 403),
        (None, "127.0.0.1", {"Host": "evil.example"}, 403),
        (None, "0.0.0.0", {}, 403),
        ("s3cret", "0.0.0.0", {}, 401),
        ("s3cret", "127.0.0.1", {}, 401),
        ("s3cret", "0.0.0.0", {"Authorization": "Bearer wrong"}, 401),
        ("s3cret", "0.0.0.0", {"Authorization": "Bearer s3cret"}, 200),
        ("s3cret", "0.0.0.0", {"Authorization": f"Basic {base64.b64encode(b'me:s3cret').decode()}"}, 200),
        ("s3cret", "0.0.0.0", {"Authorization": f"Basic {base64.b64encode(b's3cret').decode()}"}, 401),
        ("s3cret", "0.0.0.0", {"Authorization": "Basic ***"}, 401),
    ],
)
def test_who_may_look(make: Make, token: str | None, host: str, headers: dict[str, str], code: int) -> None:
    """On loopback all but pages of other sites; elsewhere clients with the token, and without a token none."""
    listener = make(token, host)
    for path in ("", "goroutine", "cmdline", "mutex"):
        found, body = fetch(listener, path, **headers)
        assert found == (404 if (code, path) == (200, "mutex") else code)
        if code != 200:
            assert b"MainThread" not in body
    if code == 403 and token is None and host == "0.0.0.0":
        assert (
            fetch(listener, "")[1].decode().startswith("profiles need a token where the profiling port can be reached")
        )


def test_a_browser_and_pprof_are_told_how_to_send_the_token(make: Make) -> None:
    """pprof sends what stands before the @ of a URL, as browsers do: by Basic."""
    connection = HTTPConnection("127.0.0.1", int(make("s3cret").url.rpartition(":")[2]), timeout=60)
    connection.request("GET", "/debug/pprof/")
    answer = connection.getresponse()
    assert answer.headers.get_all("WWW-Authenticate") == ["Bearer", 'Basic realm="profiling"']
    assert b"profiling.token_file" in answer.read()
    connection.close()


def test_a_good_certificate_is_enough(make: Make) -> None:
    """`go tool pprof -tls_cert` shows one; a client without one is refused."""
    listener = make(host="0.0.0.0", tls=AdminTlsConfig(cert_file=SERVER, client_ca_file=CA))
    url = f"https://127.0.0.1:{listener.url.rpartition(':')[2]}"
    answers = [
        send(url, "/debug/pprof/goroutine", "GET", {}, tls=trusting(certificate)) for certificate in (CLIENT, None)
    ]
    assert [answer.code for answer in answers] == [200, 403]


def test_a_bad_certificate_is_named_by_its_key(tmp_path: Path) -> None:
    """Of this listener, not of the admin port."""
    tls = AdminTlsConfig(cert_file=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match=r"^profiling\.tls\.cert_file: .*none\.pem cannot be used: "):
        ProfilingListener(ProfilingConfig(tls=tls))


@pytest.fixture
def untraced() -> Iterator[None]:
    """Allocations are not traced before and after."""
    assert not tracemalloc.is_tracing()
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_memory_in_use_by_where_it_was_allocated(make: Make) -> None:
    """The first request switches tracing on, and says so; the next one gets a profile; the last one switches it off."""
    listener = make(heap_frames=4)
    code, body = fetch(listener, "heap")
    assert (code, body.decode().partition(";")[0]) == (503, "allocations were not traced")
    assert tracemalloc.is_tracing()
    kept = allocate()

    message = read(fetch(listener, "heap?gc=1")[1])

    text = list(message.string_table)
    assert [text[one.type] for one in message.sample_type] == ["inuse_objects", "inuse_space"]
    assert text[message.default_sample_type] == "inuse_space"
    ours = {stack: values for (stack, _), values in samples(message).items() if "made_threads.allocate" in stack[0]}
    ((stack, (objects, size)),) = ours.items()
    # three, the place that their list keeps for them, and the list itself where the interpreter had no used one at hand
    assert (objects in {4, 5}, size >= 3 * 2**20) == (True, True), objects
    assert any(f"{__file__}:" in place for place in stack), "with who called it"
    assert len(kept) == 3
    assert fetch(listener, "heap?trace=off") == (200, b"allocations are not traced\n")
    assert not tracemalloc.is_tracing()


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_the_growth_of_memory(make: Make) -> None:
    """Between two moments; what was freed is not in it, and tracing ends with it."""
    kept: list[list[bytes]] = []

    class Allocating(ManualClock):
        def wait(self, event: Flag, seconds: float | None) -> bool:
            if not kept:
                kept.append(allocate())
            allocate()  # freed at once
            return super().wait(event, seconds)

    code, body = fetch(make(clock=Allocating(), heap_frames=4), "heap?seconds=1&gc=1")

    ours = [values for (stack, _), values in samples(read(body)).items() if "made_threads.allocate" in stack[0]]
    assert code == 200
    assert sum(objects for objects, _ in ours) in {4, 5}, "as above"
    assert 3 * 2**20 <= sum(size for _, size in ours) < 4 * 2**20
    assert not tracemalloc.is_tracing()


@pytest.mark.usefixtures("untraced")
def test_allocations_can_be_traced_from_the_start(make: Make) -> None:
    """By the configuration; the close of the listener ends it."""
    listener = make(heap=True, heap_frames=3)
    assert tracemalloc.get_traceback_limit() == 3
    assert fetch(listener, "heap")[0] == 200
    listener.close()
    assert not tracemalloc.is_tracing()


@pytest.mark.usefixtures("untraced")
def test_what_others_trace_goes_on(make: Make) -> None:
    """The code of a user may have reasons of its own."""
    tracemalloc.start()
    listener = make()
    assert fetch(listener, "heap")[0] == 200
    assert fetch(listener, "heap?trace=off") == (200, b"allocations are still traced: the user's code began to\n")
    listener.close()
    assert tracemalloc.is_tracing()


def test_the_command_line_has_no_settings_in_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are apart by NUL, as Go has them; a setting may be a password."""
    given = [
        "python",
        "-m",
        "inbound",
        "run",
        "--set",
        "kafka.sasl.password=s3cret",
        "--set=admin.listen=a:1",
        "-c",
        "x=y.yaml",
    ]
    monkeypatch.setattr(sys, "orig_argv", given)
    code, body = fetch(make(), "cmdline")
    assert code == 200
    assert body.decode().split("\0") == [
        "python", "-m", "inbound", "run", "--set", "kafka.sasl.password=...", "--set=admin.listen=...", "-c", "x=y.yaml",
    ]  # fmt: skip


def test_each_process_has_its_port() -> None:
    """The first has the one of the configuration; any free one is any for each."""
    config = ProfilingConfig(listen="127.0.0.1:65530")
    assert [port_of(config, index) for index in (0, 5)] == [65530, 65535]
    assert port_of(ProfilingConfig(listen="127.0.0.1:0"), 5) == 0
    with pytest.raises(ConfigError, match="process 6 would have port 65536, and 65535 is the highest"):
        port_of(config, 6)


def test_a_token_that_is_sent_in_clear_is_warned_of(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Where others can read it."""
    with caplog.at_level(logging.INFO):
        make("s3cret", "0.0.0.0")
    assert [
        record.levelname for record in caplog.records if "in clear" in record.message or "on its way" in record.message
    ]
    assert "s3cret" not in caplog.text


def configured(line: str) -> Config:
    """Return a configuration with that line."""
    return load(
        f"channels: {{orders: {{topics: [orders], group: g, processor: {{type: simple}}}}}}\n{line}\n", filename="x"
    ).config


def made_by(config: Config) -> ProfilingListener | None:
    return None if config.profiling is None else ProfilingListener(config.profiling)


def is_up(profiles: Profiles) -> bool:
    assert profiles.listener is not None
    return fetch(profiles.listener, "")[0] == 200


def test_it_comes_changes_and_goes_while_the_process_runs(make: Make) -> None:
    """One that cannot listen is refused, and the one before comes back; without the section there is none."""
    off, on = configured(""), configured('profiling: {listen: "127.0.0.1:0"}')
    other = configured('profiling: {listen: "127.0.0.1:0", heap_frames: 2}')
    taken = configured(f"profiling: {{listen: '127.0.0.1:{make().url.rpartition(':')[2]}'}}")
    profiles = Profiles(made_by, off)
    profiles.start()
    try:
        assert (off.profiling, profiles.listener) == (None, None)
        profiles.change(off, on)
        assert is_up(profiles)
        before = profiles.listener
        profiles.change(on, other)
        assert profiles.listener is not before
        assert is_up(profiles)
        with pytest.raises(ConfigError, match=r"^profiling\.listen: cannot listen on 127\.0\.0\.1:.*set another port"):
            profiles.change(other, taken)
        assert is_up(profiles)
        profiles.change(other, off)
        assert profiles.listener is None
        with pytest.raises(ConfigError, match=r"profiling\.listen: cannot listen"):
            profiles.change(off, taken)
        assert profiles.listener is None
    finally:
        profiles.close()


def test_the_names_that_it_may_be_asked_by_are_those_of_the_admin_port() -> None:
    """A foreign DNS name that points here is refused; new names count without a change of `profiling`."""
    section = 'profiling: {listen: "127.0.0.1:0"}'
    before, after = configured(section), configured(f"{section}\nadmin: {{hosts: [profiles.example]}}")
    profiles = Profiles(profiling_listener, before)
    profiles.start()
    try:
        assert profiles.listener is not None
        refused = fetch(profiles.listener, "goroutine?debug=1", Host="profiles.example:8008")
        profiles.take_names(before, after)
        told = fetch(profiles.listener, "goroutine?debug=1", Host="profiles.example:8008")
        listener = profiles.listener
        profiles.take_names(after, after)
        assert profiles.listener is listener
    finally:
        profiles.close()
    assert (refused[0], b"name it in admin.hosts" in refused[1], told[0]) == (403, True, 200)


def test_the_command_line_makes_it_of_the_configuration(tmp_path: Path) -> None:
    """Off there is none; a token that cannot be read is named by its key, before anything listens."""
    assert profiling_listener(configured("")) is None
    with pytest.raises(ConfigError, match=r"^profiling\.token_file: .*none: no such file"):
        profiling_listener(configured(f"profiling: {{token_file: {tmp_path / 'none'}}}"))
    with pytest.raises(ConfigError, match="process 9 would have port 65539"):
        profiling_listener(configured('profiling: {listen: "127.0.0.1:65530"}'), index=9)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("listen: '8008'", "profiling.listen: need host:port such as 127.0.0.1:8081, got '8008'"),
        ("heap_frames: 0", "profiling.heap_frames: need at least 1, got 0"),
        ("heap: maybe", "profiling.heap: need true or false, got 'maybe'"),
        ("hz: 10", "profiling.hz: unknown key; allowed: heap, heap_frames, listen, tls, token_file"),
    ],
)
def test_a_wrong_section_is_refused(section: str, problem: str) -> None:
    """With file, line and key, as all others."""
    with pytest.raises(ConfigError, match=rf"^x:2: {re.escape(problem)}$"):
        configured(f"profiling: {{{section}}}")


@pytest.mark.slow
def test_nothing_of_it_is_imported_where_it_is_not_configured() -> None:
    """Off costs nothing."""
    code = (
        "import sys, inbound.cli.run.run, inbound.process.application; "
        "print(sorted(name for name in sys.modules if name.startswith(('inbound.observe.profiling', 'tracemalloc'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
