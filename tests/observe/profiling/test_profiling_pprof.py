"""Profiles in pprof's format, read by Google's protobuf."""

from __future__ import annotations

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.observe.profiling.profile import Frame, Profile, StackSample, ValueType, encode
from tests.observe.profiling.pprof_message import read, samples

COUNT, CPU = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")
OUTER, INNER = Frame("app.Orders.book", "/app/orders.py", 12, 9), Frame("json.loads", "/lib/json.py", 300, 299)


def made(*found: StackSample, comments: tuple[str, ...] = ()) -> Profile:
    """Return a profile of those samples."""
    return Profile(
        title="CPU", types=(COUNT, CPU), default="cpu", samples=found, period=(CPU, 10_000_000), time_ns=1_767_225_600 * 10**9,
        duration_ns=30 * 10**9, comments=comments,
    )  # fmt: skip


def test_every_field_is_what_another_decoder_reads() -> None:
    """Types, period, times, default and comments; functions with their file and first line; one binary that needs no look."""
    profile = made(
        StackSample((INNER, OUTER), (3, 30_000_000), {"thread": "orders-worker-0", "channel": "orders"}),
        StackSample((OUTER,), (1, -5), {}),
        comments=("97.3 a second", "cpu"),
    )

    message = read(encode(profile))

    text = list(message.string_table)
    assert [(text[one.type], text[one.unit]) for one in message.sample_type] == [COUNT, CPU]
    assert (text[message.period_type.type], text[message.period_type.unit], message.period) == (*CPU, 10_000_000)
    assert (message.time_nanos, message.duration_nanos) == (1_767_225_600 * 10**9, 30 * 10**9)
    assert text[message.default_sample_type] == "cpu"
    assert [text[number] for number in message.comment] == ["97.3 a second", "cpu"]
    (mapping,) = message.mapping
    assert (mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers) == (True, True, True)
    assert {(text[f.name], text[f.system_name], text[f.filename], f.start_line) for f in message.function} == {
        ("json.loads", "json.loads", "/lib/json.py", 299),
        ("app.Orders.book", "app.Orders.book", "/app/orders.py", 9),
    }
    assert samples(message) == {
        (
            ("json.loads /lib/json.py:300", "app.Orders.book /app/orders.py:12"),
            (("thread", "orders-worker-0"), ("channel", "orders")),
        ): (3, 30_000_000),
        (("app.Orders.book /app/orders.py:12",), ()): (1, -5),
    }


def test_the_same_profile_is_the_same_bytes() -> None:
    """No time of packing is in it: files can be compared."""
    profile = made(StackSample((OUTER,), (1, 2)))
    assert encode(profile) == encode(profile)
    assert gzip.decompress(encode(profile))


NUMBERS = st.integers(-(2**63), 2**63 - 1)
# Halves of characters cannot be UTF-8; they are replaced, which is looked at below.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FRAMES = st.builds(Frame, TEXTS, TEXTS, st.integers(0, 2**31), st.integers(0, 2**31))
STACKS = st.lists(FRAMES, max_size=6).map(tuple)


@settings(max_examples=40)
@given(st.dictionaries(STACKS, st.tuples(NUMBERS, NUMBERS), max_size=8))
def test_any_values_and_names_come_back(values: dict[tuple[Frame, ...], tuple[int, int]]) -> None:
    """64 bits with sign, any text, the same place in many stacks."""
    message = read(encode(made(*(StackSample(stack, pair) for stack, pair in values.items()))))

    text, functions = list(message.string_table), {one.id: one for one in message.function}
    places = {one.id: (functions[one.line[0].function_id], one.line[0].line) for one in message.location}
    found = {
        tuple(
            Frame(text[function.name], text[function.filename], line, function.start_line)
            for function, line in map(places.__getitem__, sample.location_id)
        ): tuple(sample.value)
        for sample in message.sample
    }
    assert found == values


def test_a_name_that_is_no_text_is_replaced() -> None:
    """File names may hold anything."""
    profile = made(StackSample((Frame("f\ud800", "/tmp/\udcff.py", 1),), (1, 1)))

    assert list(samples(read(encode(profile)))) == [(("f? /tmp/?.py:1",), ())]
