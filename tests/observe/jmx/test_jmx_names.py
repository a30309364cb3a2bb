"""Names of beans as JMX writes, reads and looks for them; and requests of Jolokia's, which are one or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.observe.jmx.model import JmxError
from inbound.observe.jmx.names import MalformedNameError, ObjectName, quoted
from inbound.observe.jmx.requests import (
    COMMANDS,
    Bounded,
    JolokiaRequest,
    ValueLimits,
    of_json,
    of_path,
    reached,
    split,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("orders", "orders"),
        ("web-shop.eu/billing", "web-shop.eu/billing"),
        ("a b", "a b"),
        ("a,b", '"a,b"'),
        ("a=b", '"a=b"'),
        ("a:b", '"a:b"'),
        ("a*?", r'"a\*\?"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", "back\\slash"),
        ("back\\slash,", r'"back\\slash,"'),
        ("two\nlines", r'"two\nlines"'),
        ("", '""'),
    ],
)
def test_a_value_is_quoted_only_where_it_must_be(value: str, written: str) -> None:
    """As Java's `ObjectName.quote` does."""
    assert quoted(value) == written


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_what_is_written_is_read_back_and_is_no_pattern(values: list[str]) -> None:
    """For any name of a channel."""
    name = ObjectName.of(**{f"k{number}": value for number, value in enumerate(values)})
    assert (ObjectName.parse(str(name)), name.is_pattern) == (name, False)
    assert ObjectName.parse(name.canonical).canonical == name.canonical


def test_the_order_of_keys_does_not_tell_names_apart() -> None:
    """The canonical form has them sorted; a name keeps the order that it was given in."""
    one, other = ObjectName.parse("inbound:type=Channel,name=a"), ObjectName.parse("inbound:name=a,type=Channel")
    assert (str(one), one.canonical) == ("inbound:type=Channel,name=a", "inbound:name=a,type=Channel")
    assert one.canonical == other.canonical


def test_without_a_domain_ours_is_meant() -> None:
    """As JMX takes its default domain."""
    assert str(ObjectName.parse(":type=Channel,*")) == "inbound:type=Channel,*"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders", "a domain, a colon and keys are needed"),
        ("inbound:", "no key stands after the colon"),
        ("inbound:type", "'type' is no key=value"),
        ("inbound:type=Channel,", "'' is no key=value"),
        ("inbound:=Channel", "'' is no key=value"),
        ("inbound:ty*pe=Channel", "'ty*pe' is no key=value"),
        ("inbound:type=Channel,type=Processor", "the key type is there twice"),
        ("inbound:*,type=Channel,*", "can be there once"),
        ("inbound:type=a:b", "has a sign that needs quotes"),
        ("inbound:type=a=b", "has a sign that needs quotes"),
        ('inbound:type=a"b', "has a sign that needs quotes"),
        ('inbound:type="a', "a value in quotes does not end"),
        ('inbound:type="a"b', "a value in quotes does not end"),
        (r'inbound:type="a\b"', "a value in quotes does not end"),
        ("in\nbound:type=a", "the domain has a line end"),
    ],
)
def test_what_is_no_name_is_refused(text: str, said: str) -> None:
    """With the reason."""
    with pytest.raises(MalformedNameError, match=r".*") as refused:
        ObjectName.parse(text)
    assert said in str(refused.value)


NAMES = (
    "inbound:type=Runtime",
    "inbound:type=Channel,name=orders",
    "inbound:type=Channel,name=ordinary",
    r'inbound:type=Channel,name="a\*b"',
    "inbound:type=Partition,channel=orders,topic=orders,partition=1",
    "inbound:type=Partition,channel=orders,topic=orders,partition=12",
)


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("*:*", [0, 1, 2, 3, 4, 5]),
        ("inbound:*", [0, 1, 2, 3, 4, 5]),
        ("in?ound:*", [0, 1, 2, 3, 4, 5]),
        ("other:*", []),
        ("inbound:type=Channel,*", [1, 2, 3]),
        ("inbound:*,type=Channel", [1, 2, 3]),
        ("inbound:type=Channel", []),
        ("inbound:type=Channel,name=ord*", [1, 2]),
        ("inbound:name=orders,type=Channel", [1]),
        ("inbound:type=Channel,name=order?", [1]),
        ('inbound:type=Channel,name="a*"', [3]),
        (r'inbound:type=Channel,name="a\*b"', [3]),
        ("inbound:type=Partition,partition=1,*", [4]),
        ("inbound:type=Partition,partition=1*,*", [4, 5]),
        ("inbound:type=*", [0]),
        ("inbound:type=*,name=*", [1, 2, 3]),
        ("inbound:channel=orders,*", [4, 5]),
    ],
)
def test_a_pattern_finds_the_names_that_it_stands_for(pattern: str, numbers: list[int]) -> None:
    """Stars in the domain, in values, and for further keys."""
    wanted = ObjectName.parse(pattern)
    assert [number for number, name in enumerate(NAMES) if wanted.matches(ObjectName.parse(name))] == numbers


# -- requests ---------------------------------------------------------------------------------------------------------


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
FIELDS = {
    name: JSON | st.sampled_from(["inbound:type=Channel,*", "Group", "pause", "a/b"])
    for name in ("mbean", "attribute", "operation", "arguments", "value", "path", "config", "target")
}


@settings(max_examples=50)
@given(st.lists(st.text(min_size=1), min_size=1))
def test_what_is_escaped_is_split_where_it_was_joined(parts: list[str]) -> None:
    """Slashes and exclamation marks among them."""
    assert split(f"/{JolokiaRequest('list', path=tuple(parts)).echo()['path']}") == parts


@settings(max_examples=50)
@given(st.sampled_from([*COMMANDS, "zork", ""]), st.text(), st.dictionaries(st.text(), st.text(), max_size=2))
def test_any_path_is_a_request_or_refused(command: str, rest: str, parameters: dict[str, str]) -> None:
    """And what is answered about it can be written as JSON."""
    try:
        request = of_path(f"/{command}/{rest}", parameters)
    except (JmxError, MalformedNameError):
        return
    assert isinstance(json.loads(json.dumps(request.echo())), dict)


@settings(max_examples=50)
@given(JSON | st.fixed_dictionaries({"type": st.sampled_from(COMMANDS)}, optional=FIELDS))
def test_any_json_is_a_request_or_refused(body: Any) -> None:
    """Values of the wrong type or form."""
    try:
        request = of_json(body, {})
    except (JmxError, MalformedNameError):
        return
    assert (isinstance(request, JolokiaRequest), json.loads(json.dumps(request.echo()))["type"]) == (True, body["type"])


@settings(max_examples=50)
@given(JSON, st.lists(st.sampled_from(["*", "0", "1", "a", ""]), max_size=3), st.integers(0, 3), st.integers(0, 3))
def test_any_value_can_be_reached_into_and_cut(value: Any, path: list[str], depth: int, most: int) -> None:
    """Within its bounds nothing is deeper, or longer, than they say."""

    def deepest(one: Any) -> int:
        below = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []
        return 1 + max(map(deepest, below), default=0)

    cut = Bounded(ValueLimits(depth, most, 0)).cut(reached(value, path))
    assert depth == 0 or deepest(cut) <= depth + 1
    assert not most or not isinstance(cut, list | dict) or len(cut) <= most
