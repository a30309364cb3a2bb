"""The admin port over real sockets: what each path answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from inbound.observe.status.status import ProcessStatus, ThreadStatus, process_status
from tests.admin.admin_stage import Make, make
from tests.observe.status.made_status import Answer, ask, channel, process, session

__all__ = ["make"]  # the fixture

Found = ProcessStatus | Sequence[ProcessStatus]
Serve = Callable[[Found | Callable[[], Found]], Callable[..., Answer]]


@pytest.fixture
def serve(make: Make) -> Serve:
    """Serve a snapshot, or what makes one; gives back a function that asks for a path."""

    def start(found: Found | Callable[[], Found]) -> Callable[..., Answer]:
        url = make(found if callable(found) else lambda: found).url
        return lambda path, method="GET", **headers: ask(url, path, method, **headers)

    return start


def thread(**changes: object) -> ThreadStatus:
    return replace(ThreadStatus(name="reader", alive=True, last_step_age=0.1, failures=0), **changes)  # type: ignore[arg-type]


def test_a_well_process_is_healthy_and_ready(serve: Serve) -> None:
    """Both probes say ok."""
    get = serve(process())

    assert [(page.code, page.text) for page in (get("/healthz"), get("/readyz"))] == [(200, "ok\n"), (200, "ok\n")]


def test_dead_and_stuck_threads_make_it_unhealthy(serve: Serve) -> None:
    """Only internal threads count; a worker that is inside a slow callback is not stuck."""
    get = serve(
        process(
            threads=[
                thread(name="reader", alive=False),
                thread(name="committer", last_step_age=61.0),
                thread(name="worker-0", last_step_age=900.0, in_callback=True),
                thread(name="worker-1"),
            ]
        )
    )

    page = get("/healthz")

    assert (page.code, page.text) == (500, "thread reader is dead\nthread committer has been stuck for 61 s\n")


def test_servers_that_are_away_do_not_make_it_unhealthy(serve: Serve) -> None:
    """Restarting the process would not bring ZooKeeper or Kafka back."""
    away = channel(registered=False, kafka_problem="no brokers", ledger_problem="disk full")
    get = serve(process(session=session(state="suspended", certain_for=0.0), channels=[away]))

    assert (get("/healthz").code, get("/healthz").text) == (200, "ok\n")
    assert (get("/readyz").code, get("/readyz").text) == (
        503,
        "channel orders: not yet a member of group orders-svc\n",
    )


def test_a_member_without_partitions_is_ready(serve: Serve) -> None:
    """With more members than partitions a member has none, and is ready all the same."""
    assert serve(process(channels=[channel(partitions=[], share=0)]))("/readyz").code == 200


def test_a_stopping_process_is_not_ready(serve: Serve) -> None:
    """Traffic and rollouts see at once that it goes, while it is still healthy."""
    get = serve(process(stopping=True))

    assert (get("/readyz").code, get("/readyz").text, get("/healthz").code) == (503, "stopping\n", 200)


def test_status_is_the_snapshot(serve: Serve) -> None:
    """The JSON carries its version and every field, and can be read back."""
    found = process()

    page = serve(found)("/status")

    assert page.headers["Content-Type"] == "application/json"
    body = json.loads(page.text)
    assert body == {"v": 1, **found.as_dict()}
    assert process_status(body) == found


def test_several_processes(serve: Serve) -> None:
    """One port for several: all in the status, and each problem says whose it is."""
    well = process(pid=1)
    bad = process(pid=2, threads=[thread(alive=False)], channels=[channel(registered=False)])
    get = serve([well, bad])

    assert json.loads(get("/status").text) == {"v": 1, "processes": [well.as_dict(), bad.as_dict()]}
    assert (get("/healthz").code, get("/healthz").text) == (500, "process 2: thread reader is dead\n")
    assert get("/readyz").text == "process 2: channel orders: not yet a member of group orders-svc\n"
    assert (
        'inbound_partition_lag{channel="orders",group="orders-svc",topic="orders",partition="1",pid="2"}'
        in get("/metrics").text
    )


def test_no_process_has_answered_yet(serve: Serve) -> None:
    """While the first child starts, the parent is healthy but not ready."""
    get = serve([])

    assert get("/healthz").code == 200
    assert (get("/readyz").code, get("/readyz").text) == (503, "no process has answered yet\n")


def test_metrics_in_both_formats(serve: Serve) -> None:
    """The Accept header chooses; without one it is Prometheus' own text."""
    get = serve(process())

    plain, strict = get("/metrics"), get("/metrics", Accept="application/openmetrics-text;version=1.0.0")

    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\ninbound_batches_total{" in plain.text
    assert strict.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert strict.text.endswith("# EOF\n")


def test_the_index_lists_the_pages(serve: Serve) -> None:
    """The answer to an unknown path lists them too."""
    get = serve(process())
    page, unknown = get("/?from=browser"), get("/helthz")

    assert (page.code, page.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    pages = ["/", "/healthz", "/readyz", "/status", "/metrics", "/jmx", "/jolokia"]
    assert [line.split()[0] for line in page.text.splitlines()] == pages
    assert (unknown.code, unknown.text) == (404, "no such page; there are: / /healthz /readyz /status /metrics\n")


@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [
        ("/status", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"], "GET, HEAD"),
        ("/jmx", ["POST", "PUT", "DELETE", "TRACE"], "GET, HEAD"),
        # HEAD too: a proxy that looks must not make us work.
        ("/jolokia/version", ["PUT", "DELETE", "TRACE", "HEAD", "OPTIONS"], "GET, POST"),
    ],
)
def test_other_methods_are_refused(serve: Serve, path: str, methods: list[str], allowed: str) -> None:
    """The answer says which methods there are."""
    get = serve(process())
    answers = [get(path, method) for method in methods]

    assert {(page.code, page.headers["Allow"]) for page in answers} == {(405, allowed)}


def test_head_gives_the_same_head_and_no_body(serve: Serve) -> None:
    """Probes may use HEAD."""
    get = serve(process())

    head, full = get("/status", "HEAD"), get("/status")

    assert (head.code, head.text) == (200, "")
    assert head.headers["Content-Length"] == full.headers["Content-Length"] == str(len(full.text))


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/status", "/metrics"])
def test_a_failing_snapshot_is_logged_and_the_server_goes_on(
    serve: Serve, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets a 500, the log the reason, and the next request its answer."""
    defects = [ZeroDivisionError("a defect")]

    def snapshot() -> ProcessStatus:
        if defects:
            raise defects.pop()
        return process()

    get = serve(snapshot)
    with caplog.at_level(logging.ERROR):
        first = get(path)

    assert (first.code, first.text) == (500, "the status could not be read; see the log of the process\n")
    assert f"admin: {path} could not be answered" in caplog.text
    assert "ZeroDivisionError: a defect" in caplog.text
    assert get(path).code == 200
