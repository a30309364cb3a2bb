"""`/jmx`: requests and whole answers, as Hadoop's JSON servlet gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.observe.jmx.jmx_stage import CHANNEL, PARTITION, MakePort, Port, make_port, port

__all__ = ["make_port", "port"]  # fixtures

CONTROLLER = {
    "name": "inbound:type=Controller", "modelerType": "inbound.Controller", "State": "member", "SessionId": "0x1000ab",
    "SessionTimeout": 10.0, "CertainFor": 6.2, "Problem": None, "SessionsTotal": 1, "SuspensionsTotal": 0,
    "EvaluationsTotal": 30,
}  # fmt: skip


def error(message: str) -> dict[str, str]:
    return {"result": "ERROR", "message": message}


def beans(port: Port, path: str) -> Any:
    answer = port.ask(path)
    return answer.code, json.loads(answer.text)


def test_a_bean_is_shown_with_all_its_attributes(port: Port) -> None:
    """And the type of answer that clients of the servlet know; pages of other sites may not read it."""
    answer = port.ask("/jmx?qry=inbound:type=Controller")
    headers = {name: answer.headers.get(name) for name in (
        "Content-Type", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin")}  # fmt: skip
    assert (answer.code, json.loads(answer.text), headers) == (
        200,
        {"beans": [CONTROLLER]},
        {
            "Content-Type": "application/json; charset=utf8",
            "Access-Control-Allow-Methods": None,
            "Access-Control-Allow-Origin": None,
        },
    )


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", 6),
        ("?qry=*:*", 6),
        ("?qry=inbound:type=Channel,*", 1),
        ("?qry=inbound:name=orders,type=Channel", 1),
        ("?qry=inbound:type=Partition,*", 2),
        ("?qry=Hadoop:*", 0),
        ("?qry=", 6),
    ],
)
def test_a_query_finds_beans_by_pattern(port: Port, query: str, names: int) -> None:
    """Without one all are shown; none found is no error."""
    code, body = beans(port, f"/jmx{query}")
    assert (code, len(body["beans"])) == (200, names)


@pytest.mark.parametrize(
    ("query", "code", "body"),
    [
        (
            f"get={CHANNEL}::Group",
            200,
            {"beans": [{"name": CHANNEL, "modelerType": "inbound.Channel", "Group": "orders-svc"}]},
        ),
        (
            f"get={CHANNEL}::Topics",
            200,
            {"beans": [{"name": CHANNEL, "modelerType": "inbound.Channel", "Topics": {"orders": 4}}]},
        ),
        (
            "get=inbound:type=Partition,*::Lag",
            200,
            {
                "beans": [
                    {"name": PARTITION, "modelerType": "inbound.Partition", "Lag": 600},
                    {"name": PARTITION.replace("partition=0", "partition=1"), "modelerType": "inbound.Partition", "Lag": 600},
                ]
            },
        ),
        (
            f"get={CHANNEL}::Nope",
            404,
            {
                "beans": [
                    {
                        "name": CHANNEL, "modelerType": "inbound.Channel", "result": "ERROR",
                        "message": "No attribute with name Nope was found.",
                    }
                ]
            },
        ),
        ("get=inbound:type=None::Lag", 200, {"beans": []}),
        (f"get={CHANNEL}", 400, error("query format is not as expected.")),
        (f"get={CHANNEL}::", 400, error("query format is not as expected.")),
        (f"get={CHANNEL}::Group::x", 400, error("query format is not as expected.")),
        (
            "qry=kaputt",
            400,
            error("'kaputt': a domain, a colon and keys are needed, such as inbound:type=Channel,*"),
        ),
        (
            "get=kaputt::Lag",
            400,
            error("'kaputt': a domain, a colon and keys are needed, such as inbound:type=Channel,*"),
        ),
    ],
)  # fmt: skip
def test_one_attribute_is_got_by_name(port: Port, query: str, code: int, body: dict[str, Any]) -> None:
    """What is not there is answered as the servlet answers it."""
    assert beans(port, f"/jmx?{query}") == (code, body)


def test_a_policy_hides_what_may_not_be_read(make_port: MakePort) -> None:
    """Also when it is asked for by name: whether it is there is not told either."""
    port = make_port(policy="deny:\n- {bean: 'inbound:type=Controller', read: ['Session*', State]}\n")
    hidden = {"State", "SessionId", "SessionTimeout", "SessionsTotal"}
    shown = {name: value for name, value in CONTROLLER.items() if name not in hidden}
    assert beans(port, "/jmx?qry=inbound:type=Controller") == (200, {"beans": [shown]})
    code, body = beans(port, "/jmx?get=inbound:type=Controller::State")
    assert (code, body["beans"][0]["message"]) == (404, "No attribute with name State was found.")


def test_who_is_not_among_the_hosts_reads_nothing(make_port: MakePort) -> None:
    """The other pages are not the policy's."""
    port = make_port(policy="hosts: [10.0.0.0/8]\n")
    assert port.ask("/jmx").code == 403
    assert port.ask("/status").code == 200
