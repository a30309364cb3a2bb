"""`sasl.jaas.config` as users of the Java client write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.config.kafka_values import jaas_line, parse_jaas


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ('a.PlainLoginModule required username="me" password="p;w";', {"username": "me", "password": "p;w"}),
        ("a.PlainLoginModule required username='me' password=word;", {"username": "me", "password": "word"}),
        ('a.PlainLoginModule  REQUIRED\n  username = "me"\n  password="a \\"b\\" \\\\ c" ;', {
            "username": "me", "password": 'a "b" \\ c'}),
        ('a.PlainLoginModule required username="me"', {"username": "me"}),
        ("a.PlainLoginModule required;", {}),
    ],
)  # fmt: skip
def test_options_are_read_as_java_reads_them(line: str, options: dict[str, str]) -> None:
    """Quotes of both kinds or none, escapes, lines; the last semicolon may be forgotten."""
    read = parse_jaas(line)

    assert (read.kind, read.options) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hunter2", "need a login module"),
        ("hunter2 hunter2 hunter2", "need the word `required`"),
        ('username="hunter2"', "need a login module"),
        ("a.M required username=hunter2 password", "need options of the form"),
        ('a.M required password="hunter2', "a quotation mark is not closed"),
        ("a.M required password=hunter2 password=hunter2;", "given twice"),
        ("a.M required; b.M required password=hunter2;", "need one login module"),
    ],
)
def test_what_is_none_is_refused_without_being_repeated(line: str, problem: str) -> None:
    """It may be a password that was put in the wrong place."""
    with pytest.raises(ValueError, match=problem) as caught:
        parse_jaas(line)
    assert "hunter2" not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_]{1,8}", fullmatch=True), st.text(max_size=30), max_size=4))
def test_any_written_line_is_read_again(options: dict[str, str]) -> None:
    """Any user and any password."""
    assert parse_jaas(jaas_line("a.Module", options)).options == options


def test_a_jaas_line_does_not_show_its_options() -> None:
    """Not where it is logged by mistake."""
    assert "hunter2" not in repr(parse_jaas("a.M required password=hunter2;"))
