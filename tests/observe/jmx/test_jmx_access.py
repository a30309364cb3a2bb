"""Who may ask for what under `/jolokia`: the rights of the admin port, and the policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inbound.cli.run.run import admin_policy
from inbound.config import AdminConfig, load_policy
from inbound.errors import ConfigError
from inbound.observe.jmx.policy import Policy
from tests.observe.jmx.jmx_stage import CHANNEL, MakePort, Port, make_port, port, unreadable

__all__ = ["make_port", "port"]  # fixtures

SECURITY = "java.lang.SecurityException"
PAUSE = {"type": "exec", "mbean": CHANNEL, "operation": "pause"}
RATE = {"type": "write", "mbean": CHANNEL, "attribute": "MaxReadRate", "value": 3}
READ = {"type": "read", "mbean": CHANNEL, "attribute": "Group"}

# -- rights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Host": "evil.example:8081", "Origin": "http://evil.example:8081"},
    ],
)
def test_a_page_of_another_site_learns_nothing(port: Port, headers: dict[str, str]) -> None:
    """Nor one whose name in the DNS was made to point here."""
    answers = [port.ask(path, **headers) for path in ("/jmx", "/jolokia/version", "/status", "/metrics")]
    answers.append(port.ask("/jolokia", method="POST", body=PAUSE, **headers))
    assert ([answer.code for answer in answers], port.made.asked) == ([403] * 5, [])


@pytest.mark.parametrize(
    "headers",
    [
        {"User_Agent": "Mozilla/5.0 (X11; Linux x86_64)"},
        {"Referer": "http://evil.example/"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_no_page_can_have_a_persons_browser_change_something(port: Port, headers: dict[str, str]) -> None:
    """Neither by GET, which an `<img>` sends without an Origin, nor by POST. Reading goes on."""
    answers = [
        port.jolokia(f"/exec/{CHANNEL}/pause", **headers),
        port.jolokia(f"/write/{CHANNEL}/MaxReadRate/1", **headers),
        port.jolokia("", PAUSE, **headers),
        *port.jolokia("", [RATE, PAUSE], **headers),
    ]
    assert [(a["status"], a["error_type"]) for a in answers] == [(403, SECURITY)] * 5
    assert port.jolokia("", READ, **headers)["value"] == "orders-svc"
    assert port.made.asked == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic b3BlcmF0b3I6d3Jvbmc="}, 401),  # operator:wrong
        ({"Authorization": "Basic !!!"}, 401),
        ({"Authorization": "Basic b3BlcmF0b3I="}, 401),  # operator, without a password
        ({"Authorization": "Bearer secret"}, 200),
        ({"Authorization": "Basic b3BlcmF0b3I6c2VjcmV0"}, 200),  # operator:secret
        ({"Authorization": "basic OnNlY3JldA=="}, 200),  # :secret
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_where_there_is_a_token_it_is_needed_for_changes(
    make_port: MakePort, host: str, headers: dict[str, str], status: int
) -> None:
    """As the password of any user too: Jolokia's clients know no other way."""
    port = make_port(token=lambda: "secret", host=host)
    answers = port.jolokia("", [PAUSE, RATE, READ], **headers)
    assert [answer["status"] for answer in answers] == [status, status, 200]
    assert len(port.made.asked) == (2 if status == 200 else 0)
    assert "secret" not in str(answers)


def test_who_gives_no_token_is_asked_for_it(make_port: MakePort) -> None:
    """Java's client gives its password only then. Who only reads is not asked."""
    port = make_port(token=lambda: "secret")
    answers = [port.ask("/jolokia", method="POST", body=body) for body in (PAUSE, [READ, PAUSE], READ)]
    assert [(a.code, a.headers.get("WWW-Authenticate")) for a in answers] == [
        (401, 'Basic realm="inbound"'),
        (401, 'Basic realm="inbound"'),
        (200, None),
    ]


@pytest.mark.parametrize("headers", [{"Sec_Fetch_Site": "none"}, {"Referer": "http://e/"}])
def test_a_browser_that_knows_the_password_changes_nothing(make_port: MakePort, headers: dict[str, str]) -> None:
    """It would send it for every page."""
    port = make_port(token=lambda: "secret")
    basic = {**headers, "Authorization": "Basic b3BlcmF0b3I6c2VjcmV0"}
    answers = [port.jolokia("", PAUSE, **basic), port.jolokia(f"/exec/{CHANNEL}/pause", **basic)]
    assert ([answer["status"] for answer in answers], port.made.asked) == ([403, 403], [])


def test_a_port_that_other_machines_reach_changes_nothing_without_a_token(make_port: MakePort) -> None:
    """Reading goes on; the message says what to set."""
    port = make_port(host="0.0.0.0")
    answer = port.jolokia("", PAUSE)
    assert (answer["status"], "set admin.token_file" in answer["error"], port.made.asked) == (403, True, [])
    assert port.jolokia("", READ)["value"] == "orders-svc"


# -- policy --------------------------------------------------------------------------------------------------------

READ_ONLY = "commands: [read, list, search, version]\n"
OPERATORS = """
commands: [read, list, search, version]
allow:
- bean: inbound:type=Channel,*
  write: [MaxReadRate]
  exec: [pause, resu*]
"""
NO_RELEASE = """
deny:
- bean: "*:*"
  exec: ["release"]
- bean: inbound:type=Channel,name=orders
  read: [Members, Topics]
"""


@pytest.mark.parametrize(
    ("policy", "requests", "statuses"),
    [
        (READ_ONLY, [READ, PAUSE, RATE, {"type": "search"}, {"type": "list"}, {"type": "version"}],
         [200, 403, 403, 200, 200, 200]),
        ("commands: [read]\n", [READ, {"type": "search"}, {"type": "list"}, {"type": "version"}], [200, 403, 403, 403]),
        (OPERATORS,
         [PAUSE, RATE, {**PAUSE, "operation": "pause(java.lang.String)", "arguments": ["why"]}, {**PAUSE, "operation": "resume"},
          {**PAUSE, "operation": "rebalance"}, {**PAUSE, "mbean": "inbound:type=Processor,channel=orders"},
          {**RATE, "mbean": "inbound:type=Processor,channel=orders"}],
         [200, 200, 200, 200, 403, 403, 403]),
        (NO_RELEASE,
         [PAUSE, RATE, READ, {**PAUSE, "operation": "release", "arguments": ["orders", 1]},
          {**PAUSE, "operation": "release(java.lang.String,int)", "arguments": ["orders", 1]},
          {**READ, "attribute": "Members"}, {**READ, "attribute": ["Group", "Topics"]}],
         [200, 200, 200, 403, 403, 403, 403]),
        ("methods: [get]\n", [READ], [403]),
        ("hosts: [127.0.0.1]\n", [READ, PAUSE], [200, 200]),
        ("hosts: ['::1', 127.0.0.0/8]\n", [READ], [200]),
        ("hosts: [10.0.0.0/8]\n", [READ, PAUSE], [403, 403]),
        ("hosts: []\n", [READ], [403]),
    ],
)  # fmt: skip
def test_a_policy_says_what_may_be_asked_for(
    make_port: MakePort, policy: str, requests: list[dict[str, Any]], statuses: list[int]
) -> None:
    """Listed commands are allowed but for `deny`, others refused but for `allow`; a refusal is in the answer's body."""
    port = make_port(policy=policy)
    answers = [port.jolokia("", request) for request in requests]
    assert [answer["status"] for answer in answers] == statuses
    assert {answer["error_type"] for answer in answers if answer["status"] == 403} <= {SECURITY}
    assert len(port.made.asked) == [status for r, status in zip(requests, statuses, strict=True)
                                    if r["type"] in ("exec", "write")].count(200)  # fmt: skip


def test_what_may_not_be_read_is_left_out_where_everything_is_asked_for(make_port: MakePort) -> None:
    """But refused where it is named; with `ignoreErrors` beside the others."""
    port = make_port(policy=NO_RELEASE)
    whole = port.jolokia("", {"type": "read", "mbean": CHANNEL})["value"]
    by_pattern = port.jolokia("", {"type": "read", "mbean": "inbound:type=Channel,*"})["value"][CHANNEL]
    assert {"Members", "Topics"} & (whole.keys() | by_pattern.keys()) == set()
    assert {"Group", "Share"} <= whole.keys()
    named = port.jolokia("", {**READ, "attribute": ["Group", "Topics"], "config": {"ignoreErrors": True}})["value"]
    assert (named["Group"], named["Topics"]["error_type"]) == ("orders-svc", SECURITY)


def test_the_policy_comes_on_top_of_the_rights(make_port: MakePort) -> None:
    """It allows nothing that the port refuses."""
    port = make_port(policy=OPERATORS, token=lambda: "secret")
    assert port.jolokia("", PAUSE)["status"] == 401
    assert port.jolokia("", PAUSE, Authorization="Bearer secret")["status"] == 200
    assert port.jolokia("", {**PAUSE, "operation": "rebalance"}, Authorization="Bearer secret")["status"] == 403


def test_a_policy_that_cannot_be_read_allows_nothing(make_port: MakePort) -> None:
    """Also no reading; the reason is in the log, not in the answer."""
    port = make_port(policy=unreadable)
    answers = [port.ask("/jolokia"), port.ask("/jmx")]
    assert [(a.code, "policy cannot be read" in a.text, "deny" in a.text) for a in answers] == [(503, True, False)] * 2
    assert port.ask("/status").code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.yaml: is empty; a policy that allows everything is `deny: []`"),
        ("comands: [read]\n", "p.yaml:1: comands: unknown key; did you mean commands?"),
        ("commands: [read, peek]\n", "p.yaml:1: commands[1]: need one of read, write, exec"),
        ("hosts: [monitor.example.com]\n", "p.yaml:1: hosts[0]: need an address or a network"),
        ("deny:\n- {exec: [pause]}\n", "p.yaml:2: deny[0].bean: missing; this key is required"),
        ("deny:\n- {bean: kaputt}\n", "p.yaml: deny[0].bean: 'kaputt': a domain, a colon and keys are needed"),
        ("deny: [&a {bean: 'a:*', exec: [!!python/name:os.system x]}]\n", "p.yaml:1: "),
        ("<?xml version='1.0'?>\n<restrict/>\n", "p.yaml:"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_line(text: str, said: str) -> None:
    """As the configuration is."""
    with pytest.raises(ConfigError) as refused:
        Policy(load_policy(text, "p.yaml"), "p.yaml")
    assert str(refused.value).startswith(said)


def test_a_policy_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    """And a bad one is an error, at the start and later. Without a file there is no policy."""
    assert admin_policy(AdminConfig()) is None
    file = tmp_path / "policy.yaml"
    file.write_text(READ_ONLY)
    read = admin_policy(AdminConfig(policy=file))
    assert read is not None
    before = read()
    file.write_text("commands: [version]\n")
    after = read()
    assert (before is read(), before.command("read"), after.command("read")) == (False, True, False)
    assert after is read()
    file.write_text("commands: 3\n")
    with pytest.raises(ConfigError, match="commands: need a list, got 3"):
        read()
    with pytest.raises(ConfigError, match="need a list"):
        admin_policy(AdminConfig(policy=file))
    file.unlink()
    with pytest.raises(ConfigError, match=r"admin\.policy: .*policy\.yaml: no such file"):
        read()


@pytest.mark.parametrize(
    ("client", "allowed"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.1.2.3", False), ("fe80::1%eth0", False), ("", False)],
)
def test_addresses_are_compared_as_addresses(client: str, allowed: bool) -> None:
    """However the listener writes them."""
    assert Policy(load_policy("hosts: [10.0.0.0/8]\n", "p")).lets_in(client) is allowed
