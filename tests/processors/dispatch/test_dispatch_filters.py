"""Which events a subscription is sent: the dialects, on the attributes of events in either mode; what becomes of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from inbound.cli.main import main
from inbound.config import load
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError
from inbound.plan.plan import plan_channels
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import read_attributes
from inbound.processors.cloudevents_values import Refused
from inbound.processors.dispatch.filters import DEEPEST, Filter, left_out, passes
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import MOST_PASSED_OVER, SendWindow
from tests.processors.dispatch.dispatch_stage import SUBSCRIBER, Stage, event_headers
from tests.processors.dispatch.test_dispatch_delayed import FIRST, Delayed

EVENT = {"id": "1", "source": "/shop/eu", "type": "com.example.created", "specversion": "1.0", "tier": "gold"}
JSON = [("content-type", b"application/cloudevents+json; charset=utf-8")]
STRUCTURED = b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", %s}'


def says(*filters: dict[str, Any]) -> bool:
    """Say whether the event passes."""
    decide = passes([Filter.model_validate(one) for one in filters])
    assert decide is not None
    return decide(EVENT)


def only(*ids: str) -> list[dict[str, Any]]:
    """Return the filters that let only events with these ids pass."""
    return [{"any": [{"exact": {"id": one}} for one in ids]}]


# -- pure -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "passed"),
    [
        ([{"exact": {"type": "com.example.created"}}], True),
        ([{"exact": {"type": "com.example.create"}}], False),
        ([{"exact": {"type": "com.example.created", "tier": "silver"}}], False),
        ([{"exact": {"region": "eu"}}], False),
        ([{"not": {"exact": {"region": "eu"}}}], True),
        ([{"prefix": {"type": "com.example.", "source": "/shop"}}], True),
        ([{"prefix": {"region": "e"}}], False),
        ([{"suffix": {"source": "/eu"}}], True),
        ([{"suffix": {"source": "/us"}}], False),
        ([{"any": [{"exact": {"tier": "silver"}}, {"prefix": {"tier": "go"}}]}], True),
        ([{"any": [{"exact": {"tier": "silver"}}, {"prefix": {"tier": "si"}}]}], False),
        ([{"all": [{"exact": {"tier": "gold"}}, {"exact": {"id": "2"}}]}], False),
        ([{"exact": {"tier": "gold"}}, {"not": {"suffix": {"source": "/eu"}}}], False),
        ([{"not": {"not": {"any": [{"exact": {"tier": "gold"}}]}}}], True),
    ],
)
def test_an_event_passes_if_all_filters_of_the_list_say_so(filters: list[dict[str, Any]], passed: bool) -> None:
    """An attribute that it does not have is equal to nothing."""
    assert says(*filters) is passed


def test_without_filters_there_is_nothing_to_ask() -> None:
    assert passes([]) is None


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ("[{}]", "filters[0]: needs one of exact, prefix, suffix, all, any, not"),
        ("[{exact: {type: a}, prefix: {type: a}}]",
         "filters[0]: needs one of exact, prefix, suffix, all, any, not, got exact, prefix; put several filters into a list"),
        ("[{exact: {}}]",
         "filters[0].exact: names no attribute; give one or more, such as {type: com.example.created}"),
        ("[{not: {any: [{exact: {Type: a}}]}}]",
         "filters[0].not.any[0].exact.Type: is no attribute: only a-z and 0-9 are allowed in its name"),
        ("[{exact: {data: a}}]", "filters[0].exact.data: is no attribute: only a-z and 0-9 are allowed in its name"),
        ('[{prefix: {type: ""}}]', "filters[0].prefix.type: is compared with an empty text, which no attribute is"),
        ("[{suffix: {type: 1}}]", 'filters[0].suffix.type: need text, got 1; put it in quotes: "1"'),
        ("[{any: []}]", "filters[0].any: need at least one filter, got an empty list"),
        ("[{cesql: \"type = 'a'\"}]",
         "filters[0].cesql: no maintained Python library evaluates CESQL; say it by exact, prefix, suffix, all, any and not"),
        ("[{glob: {type: a}}]", "filters[0].glob: unknown key; allowed: all, any, exact, not, prefix, suffix"),
        ("{exact: {type: a}}", "filters: need a list, got a mapping"),
        (f"[{{any: [{', '.join(['{exact: {id: a}}'] * 100)}]}}]",
         "filters: need at most 100 filters, those within others included, got 101"),
        ("[" + "{not: " * DEEPEST + "{exact: {id: a}}" + "}" * DEEPEST + "]",
         "filters[0]: has more than 8 filters within each other"),
    ],
)  # fmt: skip
def test_a_wrong_filter_is_refused_with_its_place(filters: str, problem: str) -> None:
    """File, line, path, and what to do."""
    text = f"""\
channels:
  orders:
    topics: [orders]
    group: g
    processor:
      type: dispatch
      options:
        subscriberUri: http://a
        filters: {filters}
"""
    with pytest.raises(ConfigError) as refused:
        plan_channels(load(text, filename="f.yaml"))
    assert str(refused.value) == f"f.yaml:9: channels.orders.processor.options.{problem}"


def test_filters_stand_only_so_deep_within_each_other() -> None:
    """As deep as that they may."""
    deep: dict[str, Any] = {"exact": {"id": "1"}}
    for _ in range(DEEPEST - 1):
        deep = {"not": deep}
    assert Filter.model_validate(deep).depth == DEEPEST
    with pytest.raises(ValidationError, match="more than 8"):
        Filter.model_validate({"not": deep})


def test_check_shows_filters_as_they_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the dialects that are not given."""
    monkeypatch.chdir(tmp_path)
    Path("inbound.yaml").write_text(
        "channels:\n  orders:\n    topics: [orders]\n    group: g\n    subscriptions:\n"
        "      a: {subscriberUri: http://a, filters: [{not: {any: [{exact: {type: t}}]}}]}\n"
    )
    code = main(["check", "--show"])
    shown = [line.partition("  #")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert (code, [line for line in shown if line.startswith("filters")]) == (
        0,
        ["filters: [{not: {any: [{exact: {type: t}}]}}]"],
    )


@pytest.mark.parametrize(
    ("record", "attributes"),
    [
        (
            PlainRecord(
                0,
                value=b"x",
                headers=[*event_headers("1"), ("ce_time", b"2026-01-01T00:00:00Z"), ("ce_empty", None), ("other", b"x")],
            ),
            {
                "specversion": "1.0", "id": "1", "source": "/tests", "type": "order", "time": "2026-01-01T00:00:00Z",
                "datacontenttype": "text/plain",
            },
        ),
        (
            PlainRecord(
                0, value=STRUCTURED % b'"urgent": true, "count": 3, "subject": null, "data": "text"', headers=JSON
            ),
            {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "urgent": "true", "count": "3"},
        ),
    ],
)  # fmt: skip
def test_attributes_are_texts_in_both_modes(record: PlainRecord, attributes: dict[str, str]) -> None:
    """Those of headers, or of the JSON; data and other headers are none."""
    assert read_attributes(record) == attributes


NO_EVENTS = [
    PlainRecord(0, value=b"plain"),
    PlainRecord(1, headers=[("ce_id", b"1")]),
    PlainRecord(2, headers=[*event_headers("1"), ("ce_time", b"yesterday")]),
    PlainRecord(3, value=b"[", headers=JSON),
    PlainRecord(4, value=None, headers=JSON),
    PlainRecord(5, value=b'["a"]', headers=JSON),
    PlainRecord(6, value=STRUCTURED % b'"Bad": 1', headers=JSON),
    PlainRecord(7, value=b'{"id": "1"}', headers=JSON),
]


def test_a_record_that_is_no_event_has_no_attributes_and_is_not_left_out() -> None:
    """Other options decide about it."""
    for record in NO_EVENTS:
        with pytest.raises(Refused):
            read_attributes(record)
    assert left_out(lambda attributes: False, [*NO_EVENTS, PlainRecord(8, headers=event_headers("1"))]) == {8}


# -- a subscription -----------------------------------------------------------------------------------------------------


def test_events_that_do_not_pass_are_committed_without_a_request() -> None:
    """And counted."""
    stage = Stage(filters=only("b", "d"))
    stage.dispatch("a", "b", "c", "d", "e", seconds=1)
    status = stage.status()
    assert (stage.got(), stage.commits()) == (["b", "d"], {0: 5})
    assert (status["delivered_total"], status["filtered_total"]) == (2, 3)


def test_the_commit_does_not_go_past_an_event_that_passes_and_is_not_taken() -> None:
    """Those that do not pass are finished behind it."""
    stage = Stage(filters=only("b"))
    stage.behaviour = lambda request: Answer(503)
    stage.dispatch("a", "b", "c", seconds=2)
    assert (stage.commits(), stage.status()["filtered_total"]) == ({0: 1}, 2)


def test_a_record_that_is_no_event_is_no_matter_of_filters() -> None:
    """It is skipped, or holds its partition, as without them."""
    stage = Stage(filters=only("b"), on_undecodable="skip")
    stage.world.kafka.publish("orders", 0, [b"no event"], headers=[("ce_id", b"a")])
    stage.dispatch("b", seconds=1)
    status = stage.status()
    assert (stage.got(), stage.commits()) == (["b"], {0: 2})
    assert (status["undecodable_total"], status["skipped_total"], status["filtered_total"]) == (1, 1, 0)


def test_filters_see_the_event_as_the_record_has_it() -> None:
    """What is changed on its way to the subscriber does not count."""
    stage = Stage(filters=[{"exact": {"tenant": "a"}}], ceOverrides={"extensions": {"tenant": "a"}})
    stage.dispatch("b", seconds=1)
    assert (stage.got(), stage.commits()) == ([], {0: 1})


def test_events_that_do_not_pass_take_no_place_among_those_that_are_sent() -> None:
    """With a window of two, ten of them do not keep the second event from being sent while the first one is under way."""
    ids = ["first", *map(str, range(10)), "second"]
    stage = Stage(filters=only("first", "second"), ordering="none", max_in_flight=2)
    stage.seconds = lambda request: 60.0
    stage.dispatch(*ids, seconds=1)
    assert (stage.got(), stage.commits()) == (["first", "second"], {0: 0})


def test_events_that_do_not_pass_go_in_batches_neither() -> None:
    """Those around them go together."""
    stage = Stage(filters=[{"not": one} for one in only("b")], batch={"max_events": 3})
    stage.dispatch("a", "b", "c", "d", seconds=1)
    assert ([request.ids for request in stage.requests], stage.commits()) == ([("a", "c", "d")], {0: 4})


def test_other_filters_count_for_what_is_read_from_then_on() -> None:
    """What is open goes on as it began."""
    stage = Stage(filters=only("a", "b"))
    processor = stage.dispatch("a", seconds=1)
    options = {**stage.options, "filters": only("c")}
    processor.reconfigure(DispatchOptions.model_validate(options, context=WRITTEN), wait=0)
    stage.publish("b", "c")
    stage.run(1)
    assert (stage.got(), stage.commits()) == (["a", "c"], {0: 3})


def test_an_event_that_waits_in_a_topic_passes_the_filters_of_now() -> None:
    """It may have passed others before; those that wait for other subscriptions are no matter of filters."""
    stage = Delayed(filters=only("b"))
    stage.start()
    for one, group in (("a", b"group"), ("b", b"group"), ("a", b"another")):
        headers = [*event_headers(one), ("inbound-retry-group", group)]
        stage.world.kafka.publish(FIRST, 0, [b"x"], headers=headers)
    stage.run(3)
    status = stage.status()
    assert (stage.got(SUBSCRIBER), stage.world.commits(FIRST)) == (["b"], {0: 3})
    assert (status["filtered_total"], status["passed_over_total"]) == (1, 1)


def test_not_more_than_so_many_are_passed_over_behind_one_that_is_not_taken() -> None:
    """They would be read again after a crash."""
    window = SendWindow(64, "none")
    window.admit([PlainRecord(0)], 1)
    rooms, position = [], 1
    while room := window.room(0):
        records = [PlainRecord(position + n) for n in range(room)]
        position += room
        window.admit(records, position, pass_over={record.offset for record in records})
        rooms.append(room)
    assert (sum(rooms), max(rooms), window.room_left, window.room(position)) == (MOST_PASSED_OVER, 63, False, 64)
