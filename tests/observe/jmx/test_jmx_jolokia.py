"""`/jolokia`: requests and whole answers (but for their time), as Jolokia's agents give them."""

from __future__ import annotations

from typing import Any

import pytest

import inbound
from inbound.group.operations import Operation, OperationKind
from inbound.observe.jmx.tables import KINDS
from tests.observe.jmx.jmx_stage import CHANNEL, PARTITION, Made, MakePort, Port, make_port, port
from tests.observe.status.made_status import channel, process

__all__ = ["make_port", "port"]  # fixtures

PARTITIONS = [PARTITION, PARTITION.replace("partition=0", "partition=1")]
NAMES = [
    "inbound:type=Runtime",
    "inbound:type=Controller",
    CHANNEL,
    "inbound:type=Processor,channel=orders",
    *PARTITIONS,
]
NOT_FOUND = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE = "javax.management.AttributeNotFoundException"
ILLEGAL = "java.lang.IllegalArgumentException"
MALFORMED = "javax.management.MalformedObjectNameException"


def request(kind: str, bean: str | None = CHANNEL, **more: Any) -> dict[str, Any]:
    return {"type": kind, **({"mbean": bean} if bean is not None else {}), **more}


def fine(asked: dict[str, Any], value: Any) -> dict[str, Any]:
    return {"request": asked, "value": value, "status": 200}


def wrong(asked: dict[str, Any] | None, status: int, java: str, message: str) -> dict[str, Any]:
    return {**({"request": asked} if asked else {}), "error_type": java, "error": message, "status": status}


def read(attribute: Any = (), bean: str = CHANNEL, **more: Any) -> dict[str, Any]:
    return request("read", bean, attribute=list(attribute) if attribute == () else attribute, **more)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        # one attribute, several, and what is inside of one
        (f"/read/{CHANNEL}/Group", fine(read("Group"), "orders-svc")),
        (f"/read/{CHANNEL}/Group/", fine(read("Group"), "orders-svc")),
        ("/read/inbound:name=orders,type=Channel/Group", fine(read("Group", "inbound:name=orders,type=Channel"), "orders-svc")),
        (f"/read/{CHANNEL}/Group,Share", fine(read(["Group", "Share"]), {"Group": "orders-svc", "Share": 2})),
        (f"/read/{CHANNEL}/Topics/orders", fine(read("Topics", path="orders"), 4)),
        (f"/read/{CHANNEL}/Members/1", fine(read("Members", path="1"), "host-2")),
        (f"/read/{CHANNEL}/Members/9", fine(read("Members", path="9"), None)),
        (f"/read/{CHANNEL}/Topics/a!/b", fine(read("Topics", path="a!/b"), None)),
        ("/read/inbound:type=Runtime/Threads/*/Name",
         fine(read("Threads", "inbound:type=Runtime", path="*/Name"), ["controller", "orders-worker-0"])),
        # several beans
        ("/read/inbound:type=Partition,*/Lag",
         fine(read("Lag", "inbound:type=Partition,*"), {name: {"Lag": 600} for name in PARTITIONS})),
        ("/read/*:type=Partition,partition=%3F,*/Lag,Nope",
         fine(read(["Lag", "Nope"], "*:type=Partition,partition=?,*"), {name: {"Lag": 600} for name in PARTITIONS})),
        ("/read/inbound:*/Share", fine(read("Share", "inbound:*"), {CHANNEL: {"Share": 2}})),
        ("/read/inbound:*/Share?canonicalNaming=true",
         fine(read("Share", "inbound:*"), {"inbound:name=orders,type=Channel": {"Share": 2}})),
        # what is not there
        (f"/read/{CHANNEL}/Nope", wrong(read("Nope"), 404, NO_ATTRIBUTE, "No such attribute: Nope")),
        (f"/read/{CHANNEL}/Group,Nope", wrong(read(["Group", "Nope"]), 404, NO_ATTRIBUTE, "No such attribute: Nope")),
        (f"/read/{CHANNEL}/Group,Nope?ignoreErrors=true",
         fine(read(["Group", "Nope"]), {"Group": "orders-svc", "Nope": {
             "error_type": NO_ATTRIBUTE, "error": "No such attribute: Nope", ".error": True}})),
        ("/read/inbound:type=None/X", wrong(read("X", "inbound:type=None"), 404, NOT_FOUND, "inbound:type=None")),
        ("/read/inbound:type=None,*/X", wrong(read("X", "inbound:type=None,*"), 404, NOT_FOUND,
                                              "No MBean with pattern inbound:type=None,* found for READ request")),
        ("/read/inbound:*/Nope", wrong(read("Nope", "inbound:*"), 404, NO_ATTRIBUTE,
                                       "No attribute found for any MBean matching inbound:* pattern")),
        # bounds
        (f"/read/{CHANNEL}/Topics?maxDepth=1", fine(read("Topics"), {"orders": "4"})),
        (f"/read/{CHANNEL}/Topics,Members?maxDepth=1",
         fine(read(["Topics", "Members"]), {"Topics": "{orders=4}", "Members": "[host-1, host-2]"})),
        (f"/read/{CHANNEL}/Members?maxCollectionSize=1", fine(read("Members"), ["host-1"])),
        (f"/read/{CHANNEL}/Members,Topics,Share?maxObjects=1",
         fine(read(["Members", "Topics", "Share"]), {"Members": ["[Object limit exceeded]"] * 2,
              "Topics": "[Object limit exceeded]", "Share": "[Object limit exceeded]"})),
        # search
        ("/search/inbound:*", fine(request("search", "inbound:*"), NAMES)),
        ("/search", fine(request("search", "*:*"), NAMES)),
        ("/search/inbound:type=Ch%3Fnnel,*", fine(request("search", "inbound:type=Ch?nnel,*"), [CHANNEL])),
        ("/search/inbound:name=ord*,*?canonicalNaming=true",
         fine(request("search", "inbound:name=ord*,*"), ["inbound:name=orders,type=Channel"])),
        ("/search/elsewhere:*", fine(request("search", "elsewhere:*"), [])),
        # list
        ("/list?maxDepth=1", fine(request("list", None), {"inbound": 1})),
        ("/list/inbound?maxDepth=2", fine(request("list", None, path="inbound"), {name[8:]: 1 for name in NAMES})),
        ("/list/elsewhere", fine(request("list", None, path="elsewhere"), {})),
        ("/list/inbound/name=orders,type=Channel/attr/Group",
         fine(request("list", None, path="inbound/name=orders,type=Channel/attr/Group"),
              {"type": "java.lang.String", "desc": "The consumer group", "rw": False})),
        ("/list/inbound/type=Channel,name=orders/attr/MaxReadRate/rw",
         fine(request("list", None, path="inbound/type=Channel,name=orders/attr/MaxReadRate/rw"), True)),
        ("/list/inbound/type=Channel,name=orders/class",
         fine(request("list", None, path="inbound/type=Channel,name=orders/class"), "inbound.Channel")),
        ("/list/inbound/type=Channel,name=orders/op/resume",
         fine(request("list", None, path="inbound/type=Channel,name=orders/op/resume"),
              {"args": [], "ret": "java.lang.String", "desc": "End the operator's pauses of the group"})),
        ("/list/inbound/type=None", wrong(request("list", None, path="inbound/type=None"), 404, NOT_FOUND, "inbound:type=None")),
        ("/list/inbound/type=Runtime/zork", wrong(request("list", None, path="inbound/type=Runtime/zork"), 400, ILLEGAL,
         "list: inbound/type=Runtime/zork names nothing; there are: class, desc, attr, op")),
        # calling
        (f"/exec/{CHANNEL}/pause", fine(request("exec", operation="pause"), "orders: pause done")),
        (f"/exec/{CHANNEL}/release/orders/1",
         fine(request("exec", operation="release", arguments=["orders", "1"]), "orders: release done")),
        (f"/exec/{CHANNEL}/release(java.lang.String,int,double)/orders/1/2.5",
         fine(request("exec", operation="release(java.lang.String,int,double)", arguments=["orders", "1", "2.5"]),
              "orders: release done")),
        (f"/exec/{CHANNEL}/resetCounters()", fine(request("exec", operation="resetCounters()"), None)),
        (f"/exec/{CHANNEL}/stop", wrong(request("exec", operation="stop"), 500, "java.lang.NoSuchMethodException",
                                        f"{CHANNEL} has no operation stop")),
        (f"/exec/{CHANNEL}/pause(int)", wrong(request("exec", operation="pause(int)"), 400, ILLEGAL,
         f"{CHANNEL} has no operation pause(int); there are: pause(), pause(java.lang.String)")),
        (f"/exec/{CHANNEL}/release/orders", wrong(request("exec", operation="release", arguments=["orders"]), 400, ILLEGAL,
         f"operation release of {CHANNEL} takes other arguments than the 1 given: release(java.lang.String,int), "
         "release(java.lang.String,int,double)")),
        (f"/exec/{CHANNEL}/resume/now", wrong(request("exec", operation="resume", arguments=["now"]), 400, ILLEGAL,
         f"operation resume() of {CHANNEL} takes 0 arguments, not 1")),
        (f"/exec/{CHANNEL}/release/orders/one", wrong(request("exec", operation="release", arguments=["orders", "one"]), 400,
                                                      ILLEGAL, "release: partition: 'one' is no int")),
        (f"/exec/{CHANNEL}/release/[null]/1", wrong(request("exec", operation="release", arguments=[None, "1"]), 400, ILLEGAL,
                                                    "release: a topic and the number of a partition are needed")),
        (f"/exec/{CHANNEL}/release/orders/99999999999",
         wrong(request("exec", operation="release", arguments=["orders", "99999999999"]), 400, ILLEGAL,
               "release: partition: '99999999999' is no int")),
        (f"/exec/{CHANNEL}/release/nowhere/0", wrong(request("exec", operation="release", arguments=["nowhere", "0"]), 404,
                                                     ILLEGAL, "member host-1 does not hold nowhere/0")),
        (f"/exec/{CHANNEL}/pause/bad", wrong(request("exec", operation="pause", arguments=["bad"]), 409,
                                             "java.lang.UnsupportedOperationException", "it cannot be paused")),
        ("/exec/inbound:type=None/pause", wrong(request("exec", "inbound:type=None", operation="pause"), 404, NOT_FOUND,
                                                "inbound:type=None")),
        ("/exec/inbound:type=Channel,*/pause", wrong(request("exec", "inbound:type=Channel,*", operation="pause"), 400, ILLEGAL,
         "exec: inbound:type=Channel,* is a pattern; name the one bean to call")),
        # writing answers with the value that was there
        (f"/write/{CHANNEL}/MaxReadRate/7.5", fine(request("write", attribute="MaxReadRate", value="7.5"), 5.0)),
        (f"/write/{CHANNEL}/MaxReadRate/[null]", fine(request("write", attribute="MaxReadRate"), 5.0)),
        (f"/write/{CHANNEL}/MaxReadRate/many", wrong(request("write", attribute="MaxReadRate", value="many"), 400, ILLEGAL,
                                                     "MaxReadRate: 'many' is no java.lang.Double")),
        (f"/write/{CHANNEL}/MaxReadRate/nan", wrong(request("write", attribute="MaxReadRate", value="nan"), 400, ILLEGAL,
                                                    "MaxReadRate: 'nan' is no java.lang.Double")),
        (f"/write/{CHANNEL}/MaxReadRate/-1", wrong(request("write", attribute="MaxReadRate", value="-1"), 400, ILLEGAL,
                                                   "MaxReadRate: -1 is not above 0; null is as fast as it goes")),
        (f"/write/{CHANNEL}/Group/other", wrong(request("write", attribute="Group", value="other"), 404, NO_ATTRIBUTE,
                                                "Can't write attribute: Group")),
        (f"/write/{CHANNEL}/Nope/1", wrong(request("write", attribute="Nope", value="1"), 404, NO_ATTRIBUTE,
                                           "No such attribute: Nope")),
        # requests that are none
        ("/zork/a", wrong(None, 400, ILLEGAL, "No type with name 'zork' exists; there are: read, write, exec, list, search, "
                          "version, notification")),
        ("/read", wrong(None, 400, ILLEGAL, "read: mbean is missing, or no text")),
        ("/read/kaputt", wrong(None, 400, MALFORMED,
         "'kaputt': a domain, a colon and keys are needed, such as inbound:type=Channel,*")),
        (f"/exec/{CHANNEL}", wrong(None, 400, ILLEGAL, "exec: operation is missing, or no text")),
        (f"/write/{CHANNEL}/MaxReadRate", wrong(None, 400, ILLEGAL, "write needs a value (it may be null)")),
        (f"/read/{CHANNEL}/Group?maxDepth=deep", wrong(None, 400, ILLEGAL,
         "Invalid value of maxDepth parameter: 'deep' is no whole number from 0 on")),
        (f"/read/{CHANNEL}/Group?callback=alert", wrong(None, 400, ILLEGAL,
         "`callback` is not supported: its answer would run in any page that names it")),
        ("/notification/register", wrong(request("notification", None, path="register"), 500,
         "java.lang.UnsupportedOperationException", "no bean here sends notifications; poll with read")),
        # ways to say it
        (f"/read/{CHANNEL}/Group?includeRequest=false", {"value": "orders-svc", "status": 200}),
        (f"?p=/read/{CHANNEL}/Group", fine(read("Group"), "orders-svc")),
        (f"?p=read/{CHANNEL}/Group&includeRequest=false", {"value": "orders-svc", "status": 200}),
    ],
)  # fmt: skip
def test_a_request_by_get(port: Port, path: str, answer: dict[str, Any]) -> None:
    """An error is an answer like others: by HTTP it is 200."""
    assert port.jolokia(path) == answer


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (request("read", attribute="Group"), fine(read("Group"), "orders-svc")),
        (request("READ", attribute="Group"), fine(read("Group"), "orders-svc")),
        (request("read", attribute=["Group"]), fine(read(["Group"]), {"Group": "orders-svc"})),
        (request("read", attribute="Topics", path="orders"), fine(read("Topics", path="orders"), 4)),
        (request("read", attribute="Topics", path=None), fine(read("Topics"), {"orders": 4})),
        (request("read", "inbound:type=Partition,*", attribute=["Lag"], path="*/Lag"),
         fine(read(["Lag"], "inbound:type=Partition,*", path="*/Lag"), dict.fromkeys(PARTITIONS, 600))),
        (request("read", attribute="Group", config={"includeRequest": False}), {"value": "orders-svc", "status": 200}),
        (request("read", attribute="Topics", config={"maxDepth": 1}), fine(read("Topics"), {"orders": "4"})),
        (request("exec", operation="release", arguments=["orders", 1]),
         fine(request("exec", operation="release", arguments=["orders", 1]), "orders: release done")),
        (request("exec", operation="release", arguments=["orders", 1.5]),
         wrong(request("exec", operation="release", arguments=["orders", 1.5]), 400, ILLEGAL, "release: partition: 1.5 is no int")),
        (request("exec", operation="release", arguments=["orders", True]),
         wrong(request("exec", operation="release", arguments=["orders", True]), 400, ILLEGAL,
               "release: partition: True is no int")),
        (request("exec", operation="pause", arguments=["\ud800"]),
         wrong(request("exec", operation="pause", arguments=["\ud800"]), 400, ILLEGAL,
               "pause: reason: '\\ud800' is no java.lang.String")),
        (request("exec", operation="pause", arguments=["a\nb"]),
         wrong(request("exec", operation="pause", arguments=["a\nb"]), 400, ILLEGAL,
               "pause: reason: 'a\\nb' is no java.lang.String")),
        (request("exec", operation="pause", arguments=[]), fine(request("exec", operation="pause"), "orders: pause done")),
        (request("exec", operation="pause"), fine(request("exec", operation="pause"), "orders: pause done")),
        (request("exec", operation="pause", arguments={"a": 1}), wrong(None, 400, ILLEGAL, "exec: `arguments` is no list")),
        (request("exec", None, operation="pause"), wrong(None, 400, ILLEGAL, "exec: mbean is missing, or no text")),
        (request("write", attribute="MaxReadRate", value=None), fine(request("write", attribute="MaxReadRate"), 5.0)),
        (request("write", attribute="MaxReadRate", value=3), fine(request("write", attribute="MaxReadRate", value=3), 5.0)),
        (request("write", attribute="MaxReadRate"), wrong(None, 400, ILLEGAL, "write needs a value (it may be null)")),
        (request("search", None), fine(request("search", "*:*"), NAMES)),
        (request("list", None, path="inbound/type=Runtime/class"),
         fine(request("list", None, path="inbound/type=Runtime/class"), "inbound.Runtime")),
        (request("version", None, target={"url": "service:jmx:rmi:///x"}),
         wrong(None, 400, "java.lang.UnsupportedOperationException", "`target` asks for a proxy, and this is none")),
        (request("read", config=3), wrong(None, 400, ILLEGAL, "`config` is no JSON object")),
        ({}, wrong(None, 400, ILLEGAL, "No type given")),
        ([], []),
        ([1], [wrong(None, 400, ILLEGAL, "a request is a JSON object with a `type`")]),
        (b"{not json", wrong(None, 400, ILLEGAL, "Invalid JSON request")),
        (b'{"type": "version", "x": NaN}', wrong(None, 400, ILLEGAL, "Invalid JSON request")),
        (b'{"type": "version", "x": 1e999}', wrong(None, 400, ILLEGAL, "Invalid JSON request")),
        (b"3", wrong(None, 400, ILLEGAL, "Invalid JSON Request. Expected Object or Array")),
        (b'"read"', wrong(None, 400, ILLEGAL, "Invalid JSON Request. Expected Object or Array")),
        (b"", wrong(None, 400, ILLEGAL, "Invalid JSON request")),
        (b"[" * 5000 + b"]" * 5000, wrong(None, 400, ILLEGAL, "Invalid JSON request")),
        (b"[" * 200 + b"]" * 200, wrong(None, 400, ILLEGAL, "Invalid JSON Request. Expected Object or Array")),
    ],
)  # fmt: skip
def test_a_request_by_post(port: Port, body: Any, answer: Any) -> None:
    """The same in JSON, where values have types."""
    assert port.jolokia("/", body) == answer


def test_several_requests_are_answered_one_by_one_and_see_what_those_before_changed(port: Port) -> None:
    """One that fails spoils none of the others."""
    rate = request("read", attribute="MaxReadRate")
    answers = port.jolokia("", [rate, request("write", attribute="MaxReadRate", value=9), {"type": "zork"}, rate])
    assert [answer.get("value", answer["status"]) for answer in answers] == [5.0, 5.0, 400, 9.0]


def test_the_bare_address_answers_with_the_version(port: Port) -> None:
    """Clients look at the protocol there before anything else."""
    answers = [port.jolokia(path) for path in ("", "/", "/version", "?p=")]
    agent = answers[0]["value"].pop("id")
    for answer in answers[1:]:
        assert answer["value"].pop("id") == agent
    assert answers == [
        fine(
            {"type": "version"},
            {
                "agent": inbound.__version__, "protocol": "8.2",
                "details": {"agent_version": inbound.__version__, "agent_id": agent, "secured": False},
                "config": {"agentId": agent, "agentType": "inbound", "maxDepth": "15", "maxCollectionSize": "0",
                           "maxObjects": "0", "canonicalNaming": "false"},
                "info": {"product": "inbound", "vendor": "inbound", "version": inbound.__version__},
            },
        )
    ] * 4  # fmt: skip


def test_what_operations_ask_for(port: Port) -> None:
    """Of the group where they are of the group, else of the member whose bean it is."""
    for path in (
        "/pause", "/pause/a new disk", "/resume", "/pauseMember/why", "/resumeMember", "/rebalance", "/release/orders/1",
        "/release/orders/1/30",
    ):  # fmt: skip
        port.jolokia(f"/exec/{CHANNEL}{path}")
    port.jolokia(f"/exec/{PARTITION}/release")
    port.jolokia(f"/exec/{PARTITION}/release/5")
    port.jolokia(f"/write/{CHANNEL}/MaxReadRate/20")
    assert [operation for _, operation in port.made.asked] == [
        Operation(OperationKind.PAUSE),
        Operation(OperationKind.PAUSE, reason="a new disk"),
        Operation(OperationKind.RESUME),
        Operation(OperationKind.PAUSE, "host-1", "why"),
        Operation(OperationKind.RESUME, "host-1"),
        Operation(OperationKind.REBALANCE),
        Operation(OperationKind.RELEASE, "host-1", topic="orders", partition=1),
        Operation(OperationKind.RELEASE, "host-1", topic="orders", partition=1, seconds=30.0),
        Operation(OperationKind.RELEASE, "host-1", topic="orders", partition=0),
        Operation(OperationKind.RELEASE, "host-1", topic="orders", partition=0, seconds=5.0),
        Operation(OperationKind.RATE, "host-1", per_second=20.0),
    ]


def test_a_processor_without_a_rate_shows_none_and_takes_none(make_port: MakePort) -> None:
    """The attribute is there, and cannot be written."""
    port = make_port(Made(process(channels=[channel()])))
    listed = port.jolokia("/list/inbound/type=Processor,channel=orders/attr/MaxReadRate")["value"]
    answer = port.jolokia("/write/inbound:type=Processor,channel=orders/MaxReadRate/3")
    assert (listed["rw"], answer["status"], answer["error_type"], port.made.asked) == (False, 404, NO_ATTRIBUTE, [])
    assert answer["error"].startswith("Can't write attribute: MaxReadRate: Records per second that the processor takes")


def test_names_with_odd_letters_can_be_asked_for_by_get_and_post(make_port: MakePort) -> None:
    """`!` and quotes get everything through."""
    name = 'web/"shop",1!*'
    port = make_port(Made(process(channels=[channel(name=name)])))
    (found,) = port.jolokia("/search/inbound:type=Channel,*")["value"]
    assert found == r'inbound:type=Channel,name="web/\"shop\",1!\*"'
    assert port.jolokia("", request("read", found, attribute="Group"))["value"] == "orders-svc"
    escaped = found.replace("!", "!!").replace("/", "!/")
    assert port.jolokia(f"/read/{escaped}/Group")["value"] == "orders-svc"


def test_counters_begin_at_0_again_for_this_face_alone(port: Port) -> None:
    """Prometheus must never see one go back. A new claim, and a new process, begin at 0."""
    made = port.made
    counters = ["RecordsTotal", "BatchesTotal", "Share"]

    def values() -> list[Any]:
        found = port.jolokia("", request("read", attribute=counters))["value"]
        return [found[name] for name in counters]

    before = values()
    port.jolokia(f"/exec/{CHANNEL}/resetCounters")
    after = values()
    made.status = process(channels=[channel(records_total=1300, batches_total=14)])
    later = values()
    metrics = [line for line in port.ask("/metrics").text.splitlines() if line.startswith("inbound_batches_total")]
    made.status = process(pid=99, channels=[channel(records_total=3, batches_total=2)])
    assert (before, after, later, values()) == ([1234, 12, 2], [0, 0, 2], [66, 2, 2], [3, 2, 2])
    assert [line.rpartition(" ")[2] for line in metrics] == ["14.0"]


def test_what_has_not_changed_since_is_not_sent_again(port: Port) -> None:
    """For `list` and `search`, whose answers are long; values change all the time."""
    port.jolokia("/search/inbound:*")  # a first look
    future = 99_999_999_999
    unchanged = {"request": request("search", "inbound:*"), "status": 304}
    assert port.jolokia(f"/search/inbound:*?ifModifiedSince={future}") == unchanged
    assert port.jolokia(f"/list?ifModifiedSince={future}")["status"] == 304
    assert port.jolokia("/search/inbound:*?ifModifiedSince=1")["value"] == NAMES
    answer = port.jolokia(f"/read/{CHANNEL}/Group?ifModifiedSince={future}")
    assert (answer["status"], answer["error_type"]) == (400, ILLEGAL)


def test_several_processes_behind_one_port_are_told_apart_by_a_key(make_port: MakePort) -> None:
    """A process that does not answer has one bean, which says so."""
    member = channel(name="orders", consumer_id="a-1", partitions=[])
    down = process(pid=7, session=None, channels=[], problem="process 2 does not answer")
    port = make_port(Made([process(), process(pid=8, channels=[member]), down]))
    names = port.jolokia("/search/inbound:type=Channel,*")["value"]
    assert names == [f"{CHANNEL},process=0", f"{CHANNEL},process=1"]
    assert port.jolokia("/search/inbound:process=2,*")["value"] == ["inbound:type=Runtime,process=2"]
    problems = port.jolokia("/read/inbound:type=Runtime,process=2/Problems,Healthy,Ready")["value"]
    assert problems == {"Problems": ["process 2 does not answer"], "Healthy": False, "Ready": False}
    port.jolokia(f"/exec/{CHANNEL},process=1/release/orders/1")
    assert port.made.asked == [("orders", Operation(OperationKind.RELEASE, "a-1", topic="orders", partition=1))]


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("", "application/json; charset=utf-8"),
        ("?mimeType=text/plain", "text/plain; charset=utf-8"),
        ("?mimeType=text/html", "application/json; charset=utf-8"),
    ],
)
def test_the_type_of_the_answer_may_be_chosen(port: Port, asked: str, got: str) -> None:
    """But none that a browser would run."""
    assert port.ask(f"/jolokia/version{asked}").headers["Content-Type"] == got


def test_every_bean_can_be_read_whole(make_port: MakePort) -> None:
    """No attribute of any type fails, or is of another type than it says."""
    from tests.observe.jmx.made_jmx import everything

    port = make_port(Made(everything()))
    listed = port.jolokia("/list/inbound")["value"]
    read_all = port.jolokia("/read/inbound:*")["value"]
    wrong_types = [
        (name, attribute, value)
        for name, values in read_all.items()
        for attribute, value in values.items()
        if not _fits(value, listed[name.removeprefix("inbound:")]["attr"][attribute]["type"])
    ]
    types = {name.partition(",")[0].partition("type=")[2] for name in read_all}
    assert (wrong_types, types) == (
        [],
        {kind.type for kind, _ in KINDS},
    )


def _fits(value: Any, java: str) -> bool:
    wanted = {
        "java.lang.String": str, "boolean": bool, "int": int, "long": int, "double": float, "java.lang.Long": int,
        "java.lang.Double": float, "[Ljava.lang.String;": list, "java.util.Map": dict, "[Ljava.util.Map;": list,
    }[java]  # fmt: skip
    if value is None:
        return java.startswith("java.lang.")
    return isinstance(value, wanted) and (wanted is not int or not isinstance(value, bool))
