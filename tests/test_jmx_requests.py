"""Whatever is sent as a request of Jolokia's: it is one, or it is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.jmx.model import JmxError
from inbound.jmx.names import MalformedNameError
from inbound.jmx.requests import COMMANDS, JolokiaRequest, escaped, of_json, of_path, split
from inbound.jmx.values import Bounded, Bounds, reached

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
    assert split("/" + "/".join(map(escaped, parts))) == parts


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
    """Whatever stands where something else belongs."""
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

    cut = Bounded(Bounds(depth, most, 0)).cut(reached(value, path))
    assert depth == 0 or deepest(cut) <= depth + 1
    assert not most or not isinstance(cut, list | dict) or len(cut) <= most
