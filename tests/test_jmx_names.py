"""Names of beans: written as JMX writes them, read back, and looked for by patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.jmx.names import MalformedNameError, ObjectName, quoted


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
    """Whatever channels are called."""
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
