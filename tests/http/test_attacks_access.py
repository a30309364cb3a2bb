"""What strangers could have a process do for them, or tell them: each attack as it came, and that it is refused now.

What stopped a process: `tests/http/test_attacks.py`.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.admin.listener import AdminServer
from inbound.cli.run import run as run_command
from inbound.config import AdminConfig, ProfilingConfig, load
from inbound.config.http_values import DISPATCHED
from inbound.ledger.disk import replace_file
from inbound.observe.profiling.listener import ProfilingListener
from inbound.process.zookeeper.client import zookeeper_access
from inbound.processors.dispatch.transport import Answer
from tests.ingress.ingress_stage import EVENT, Stage, ask, request, running, statuses
from tests.observe.jmx.jmx_stage import CHANNEL, MakePort, Port, make_port, port
from tests.observe.status.made_status import ask as visit
from tests.observe.status.made_status import process
from tests.processors.dispatch.dispatch_stage import DEAD
from tests.processors.dispatch.dispatch_stage import Stage as Dispatching

__all__ = ["make_port", "port"]  # the fixtures

# -- the dispatcher as a tool of others -------------------------------------------------------------------------------


def test_what_a_subscription_sends_is_refused_by_admin_ports_and_taken_by_the_ingress(make_port: MakePort) -> None:
    """`subscriberUri: http://127.0.0.1:8081/channels/payments/pause` paused a channel; chains of ingresses are legal."""
    stage = Dispatching(subscriberUri="http://127.0.0.1:8081/channels/orders/pause")
    stage.dispatch("one", seconds=2)
    target = stage.processors["a"]._sender.attempts.targets.subscriber
    sent = dict(line.decode().split(": ", 1) for line in target.headers)
    sent |= stage.requests[0].headers
    admin = make_port()
    headers = {name.replace("-", "_"): value for name, value in sent.items() if name.lower() != "host"}
    refused = admin.ask("/channels/orders/pause", method="POST", body=b"{}", **headers)
    read = admin.ask("/status", **{DISPATCHED: "1"})
    with running() as (ingress, _):
        taken = ask(ingress, headers={**EVENT, **sent})[0]

    assert (refused.code, read.code, admin.made.asked, taken) == (403, 403, [], 202)


def test_children_ask_for_a_token_that_their_parent_alone_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any configuration: it comes by their standard input, and no other process reads it there."""
    reading, writing = os.pipe()
    os.write(writing, b"random-token\nwhat comes later")
    real = os.read
    monkeypatch.setattr("inbound.cli.run.run.os.read", lambda descriptor, count: real(reading, count))
    run_command._token_from_stdin.cache_clear()
    try:
        token = run_command._token_of_parent(AdminConfig())()
        rest = real(reading, 100)
    finally:
        run_command._token_from_stdin.cache_clear()
        os.close(reading)
        os.close(writing)

    assert (token, rest) == ("random-token", b"what comes later")


# -- secrets in a subscriber's URL ------------------------------------------------------------------------------------


def test_a_dead_letter_names_its_subscriber_without_what_is_secret_in_the_url() -> None:
    """As the log does."""
    stage = Dispatching(
        subscriberUri="http://subscriber/hook?token=hunter2&tenant=a",
        delivery={"retry": 0, "backoffDelay": "PT1S", "deadLetterSink": DEAD},
    )
    stage.behaviour = lambda request: Answer(400 if request.url != DEAD else 202)
    stage.dispatch("bad", seconds=5)
    (letter,) = [request for request in stage.requests if request.url == DEAD]

    assert (letter.headers["ce-knativeerrordest"], "hunter2" in str(letter)) == ("http://subscriber/hook", False)


# -- browsers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def profiles() -> Iterator[Callable[..., int]]:
    """Ask a listener of profiles that has a token. Returns the status."""
    listener = ProfilingListener(ProfilingConfig(listen="127.0.0.1:0"), token=lambda: "secret", hosts=("pods.example",))
    listener.start()

    def fetch(**headers: str) -> int:
        return visit(listener.url, "/debug/pprof/cmdline", **{k.replace("_", "-"): v for k, v in headers.items()}).code

    yield fetch
    listener.close()


PASSWORD = f"Basic {base64.b64encode(b'x:secret').decode()}"


def test_a_page_of_another_site_reads_no_profile_with_a_password_that_a_browser_keeps(
    profiles: Callable[..., int],
) -> None:
    """The browser sends it along for a page of any site; a person, and `go tool pprof`, still read."""
    pages = [{"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}, {"Referer": "http://evil.example/"}]
    people: list[dict[str, str]] = [{}, {"Sec_Fetch_Site": "none", "User_Agent": "Mozilla/5.0"}]

    assert [profiles(Authorization=PASSWORD, **one) for one in pages] == [403] * 3
    assert [profiles(Authorization=PASSWORD, **one) for one in people] == [200] * 2


def test_a_foreign_name_that_points_here_reads_nothing_and_a_configured_one_does(
    profiles: Callable[..., int],
) -> None:
    """DNS rebinding: to a browser such a page is of this site."""
    found = {host: profiles(Host=host, Authorization="") for host in ("evil.example", "pods.example", "10.0.0.7:8008")}

    assert (found["evil.example"], found["pods.example"], found["10.0.0.7:8008"]) == (403, 401, 401)


def test_probes_and_scrapers_ask_by_address_and_by_the_names_that_are_configured() -> None:
    """Kubelets by the pod's address, Prometheus by an address or the service's name."""
    server = AdminServer(process, host="127.0.0.1", port=0, port_given=True, hosts=("metrics.svc",))
    server.start()
    try:
        hosts = "10.0.0.7:8080", "[::1]:8080", "localhost", "METRICS.svc:8080", socket.gethostname(), "evil.example"
        found = [visit(server.url, "/metrics", Host=host).code for host in hosts]
    finally:
        server.close()

    assert found == [*[200] * 5, 403]


@pytest.mark.parametrize("password", ["Basic \x93", "Basic ====", "Basic /w==", "Basic"])
def test_a_password_that_is_none_is_a_wrong_one(
    make_port: MakePort, profiles: Callable[..., int], password: str
) -> None:
    """Letters that base64 does not have were an error of ours, with its trace in the log."""
    port = make_port(token=lambda: "secret")
    asked = {"type": "exec", "mbean": CHANNEL, "operation": "pause"}
    answer = port.ask("/jolokia", method="POST", body=asked, Authorization=password)

    assert (answer.code, profiles(Authorization=password), port.made.asked) == (401, 401, [])


# -- small ones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/topics%2forders", "/topics%2Forders", "/a%2ftopics/orders"])
def test_a_slash_that_is_written_as_a_number_parts_no_path(target: str) -> None:
    """A proxy before us, that lets `/topics/...` pass for some, has seen another path."""
    stage = Stage()
    answer = stage.post(request(target))

    assert (statuses(answer), stage.producer.written) == ([404], [])


@pytest.mark.parametrize("umask", [0o077, 0o022])
def test_a_proof_is_readable_for_whom_the_umask_lets_read(tmp_path: Path, umask: int) -> None:
    """077 is what SECURITY.md recommends where others use the machine."""
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "proof.json", b"{}")
    finally:
        os.umask(before)

    assert (tmp_path / "proof.json").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_path_of_five_thousand_digits_leads_nowhere(port: Port) -> None:
    """Python makes no number of so many: that was an error of ours, with its trace in the log."""
    body = {"type": "read", "mbean": CHANNEL, "attribute": "Partitions", "path": "9" * 5000}
    answer = port.ask("/jolokia", method="POST", body=body)

    assert (answer.code, json.loads(answer.text)["status"], json.loads(answer.text)["value"]) == (200, 200, None)


@pytest.mark.parametrize(("acl", "warned"), [("", True), (", acl: creator", False), (", acl: open", False)])
def test_a_certificate_for_zookeeper_with_nodes_that_are_open_is_warned_of(
    acl: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Who shows a certificate means to be known by it; the nodes are everybody's all the same."""
    certificates = Path(__file__).parent.parent / "certificates"
    text = (
        f'zookeeper: {{hosts: "h:1", tls: {{ca_file: {certificates}/ca.pem, cert_file: {certificates}/client.pem}}{acl}}}\n'
        "channels: {a: {topics: [t], group: g, processor: {type: simple, options: {sinks: [log]}}}}\n"
    )
    zookeeper_access(load(text, filename="f.yaml").config.zookeeper)

    assert ("everybody may change the nodes" in caplog.text) is warned
