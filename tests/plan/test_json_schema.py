"""The JSON Schema of the configuration says what the loader says, as far as a schema can."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from inbound.config import load, render
from inbound.config.schema import with_units
from inbound.errors import ConfigError
from inbound.plan.plan import plan_channels
from inbound.plan.plugins import configuration_schema, options_schema
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, BatchResponse
from tests.config.test_config_effective import scalars

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "config" / "examples").glob("*.yaml"))
SCHEMA = with_units(configuration_schema())
VALIDATOR = Draft202012Validator(SCHEMA)

GOOD = """
zookeeper: {chroot: /x, session_timeout: 1500ms}
kafka: {bootstrap.servers: [a:1, b:2], fetch.max.wait.ms: "5", check.crcs: no}
controller: {rebalance_delay: 0, join_delay: 0s}
ledger: {type: none, retention: 1.5h}
channels:
  a-1.b:
    topics: [orders]
    group: g
    coordinator: {type: static, partitions: {orders: [0, 1]}}
    on_error: {then: dead-letter, dead_letter_topic: failed}
    reader: {batch_bytes: 500kB, idle_wait: 0.25ms}
    processor: {type: simple, options: {sinks: [log, {type: jsonl, path: x}, "mine:Sink", {type: "mine:Sink", x: 1}]}}
  b: {topics_pattern: "a.*", group: g, coordinator: {}, processor: {type: "a.b:C", options: {anything: [1]}}}
  c: {topics: [x], group: g, coordinator: {type: "m:C", options: {y: 1}}, processor: {type: by-name}}
"""


def problems(document: Any, validator: Draft202012Validator = VALIDATOR) -> set[str]:
    """Return where the schema finds something wrong, as dotted paths."""
    found = validator.iter_errors(document)
    return {".".join(map(str, error.absolute_path)) for error in found}


def changed(*path: str, value: Any) -> Any:
    """Return GOOD with one value replaced, or put in."""
    document = here = yaml.safe_load(GOOD)
    for key in path[:-1]:
        here = here.setdefault(key, {})
    here[path[-1]] = value
    return document


def test_the_schema_is_one() -> None:
    """By the draft that it names."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_good(example: Path) -> None:
    """Those that people copy from; what `check --show` prints for them too."""
    text = example.read_text()
    rendered = render(load(text, filename="f").config)
    assert (problems(yaml.safe_load(text)), problems(yaml.safe_load(rendered))) == (set(), set())


def test_what_may_be_written_in_several_ways_is_good_in_each() -> None:
    """Lists and texts, numbers as text, zero without a unit, sections left empty."""
    load(GOOD, filename="f")
    assert problems(yaml.safe_load(GOOD)) == set()


CHANNEL = ("channels", "b")
BAD: list[tuple[tuple[str, ...], Any]] = [
    (("zookeper",), {}),
    (("zookeeper", "session_timeout"), 10),
    (("zookeeper", "session_timeout"), "10"),
    (("zookeeper", "session_timeout"), "0"),
    (("zookeeper", "hosts"), None),
    (("kafka", "group.id"), "g"),
    (("kafka", "bootstrap.server"), "a:1"),
    (("kafka", "fetch.max.wait.ms"), "5ms"),
    (("kafka", "fetch.max.bytes"), 0),
    (("kafka", "security.protocol"), "ssl"),
    (("ledger", "type"), "file"),
    (("ledger", "retention"), 0),
    (("channels",), {}),
    (("channels", "a/b"), {"topics": ["x"], "group": "g", "processor": {"type": "simple"}}),
    ((*CHANNEL, "workers"), 0),
    ((*CHANNEL, "workers"), "5"),
    ((*CHANNEL, "wokers"), 5),
    ((*CHANNEL, "group"), "a/b"),
    ((*CHANNEL, "topics"), ["x"]),
    ((*CHANNEL, "auto_offset_reset"), "newest"),
    ((*CHANNEL, "coordinator"), {"type": "fixed-count"}),
    ((*CHANNEL, "coordinator"), {"type": "fixed-count", "count": 0}),
    ((*CHANNEL, "coordinator"), {"type": "dynamc"}),
    ((*CHANNEL, "coordinator"), {"type": "static", "partitions": {"a": []}}),
    ((*CHANNEL, "coordinator"), {"type": "static", "partitions": {"a b": [1]}}),
    ((*CHANNEL, "on_error"), {"then": "dead-letter"}),
    ((*CHANNEL, "on_error"), {"dead_letter_topic": "x"}),
    ((*CHANNEL, "reader"), {"batch_bytes": "1mib"}),
    ((*CHANNEL, "processor"), {"options": {}}),
    ((*CHANNEL, "processor"), {"type": "a b"}),
    ((*CHANNEL, "processor"), {"type": "simple", "options": {"sinks": []}}),
    ((*CHANNEL, "processor"), {"type": "simple", "options": {"sinks": ["log"], "sink": "log"}}),
    ((*CHANNEL, "processor"), {"type": "simple", "options": {"sinks": [{"type": "jsonl"}]}}),
    ((*CHANNEL, "processor"), {"type": "simple", "options": {"sinks": [{"type": "jsonl", "path": "x", "sync": True}]}}),
    ((*CHANNEL, "processor"), {"type": "simple", "options": {"sinks": ["lgo"]}}),
    ((*CHANNEL, "processor"), {"type": "simple"}),
]


@pytest.mark.parametrize(("path", "value"), BAD, ids=[f"{'.'.join(path)}={value}" for path, value in BAD])
def test_a_bad_value_is_refused_by_the_schema_and_by_the_loader(path: tuple[str, ...], value: Any) -> None:
    """The schema points at the value, or at what holds it."""
    document = changed(*path, value=value)

    with pytest.raises(ConfigError):
        plan_channels(load(yaml.safe_dump(document), filename="f"))
    found = problems(document)
    assert found
    assert all(".".join(path).startswith(place) or place.startswith(".".join(path)) for place in found)


def test_units_bounds_and_defaults_are_told_as_they_are_written() -> None:
    """What an editor shows when the pointer rests on a key."""
    reader = SCHEMA["$defs"]["ReaderConfig"]["properties"]
    timeout = SCHEMA["$defs"]["ZooKeeperConfig"]["properties"]["session_timeout"]

    assert (reader["batch_bytes"]["default"], reader["idle_wait"]["default"]) == ("1MiB", "100ms")
    assert reader["idle_wait"]["description"].endswith(
        "A duration with its unit: ms, s, m, h, d; more than 0s, at most 5m."
    )
    assert timeout["description"].endswith("A duration with its unit: ms, s, m, h, d; 1s to 24d.")
    assert "$comment" not in json.dumps(SCHEMA)


def test_every_key_is_described() -> None:
    """But Kafka's own, which Kafka describes, and the names of kinds."""
    unexplained = [
        f"{name}.{key}"
        for name, definition in SCHEMA["$defs"].items()
        for key, schema in definition.get("properties", {}).items()
        if "description" not in {**SCHEMA["$defs"].get(schema.get("$ref", "").rsplit("/", 1)[-1], {}), **schema}
        and "const" not in schema
    ]
    assert unexplained == []


FULL = yaml.safe_load((EXAMPLES[0].parent / "full.yaml").read_text())


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2000)
    | st.floats(-1, 3)
    | st.text("ab1:/ .-", max_size=4)
    | st.sampled_from(["0", "0.0", "1s", "1e9d", "0MiB", "1.5KiB", "a:1", "m:C", "simple", "dead-letter", "true", []])
    | st.lists(st.text("ab", min_size=1, max_size=2) | st.integers(0, 9), max_size=2)
    | st.dictionaries(st.sampled_from(["type", "a", "sinks"]), st.sampled_from(["dynamic", "m:C", 1]), max_size=2)
)


@pytest.mark.slow
@settings(max_examples=60)
@given(path=st.sampled_from(scalars(FULL)), value=VALUES)
def test_the_schema_refuses_nothing_that_the_loader_takes(path: tuple[Any, ...], value: Any) -> None:
    """An editor that underlines what is right would be switched off."""
    document = here = copy.deepcopy(FULL)
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value

    assert problems(document) == set() or not is_taken(document)


def is_taken(document: Any) -> bool:
    """Say whether the loader, and the plugins named, take the document."""
    try:
        plan_channels(load(yaml.safe_dump(document), filename="f"))
    except ConfigError as refusal:
        return "no module" in str(refusal) or "no processor is called" in str(refusal)
    return True


class Options(BaseModel):
    """What Shop takes."""

    model_config = ConfigDict(extra="forbid")
    url: str = Field(description="where to")
    token: SecretStr = SecretStr("s3cret")
    retries: int = Field(default=3, ge=0)


class Shop(BatchEventProcessor):
    """A user's processor."""

    Options = Options

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


class Bare(Shop):
    """One that checks nothing."""

    Options = None  # type: ignore[assignment]


def test_the_options_of_a_processor_have_a_schema_of_their_own() -> None:
    """Made from its model; a default that is a secret is not told. Without a model it takes any, and says why."""
    schema = with_units(options_schema(Shop, "shop:Shop"))
    validator = Draft202012Validator(schema)

    assert problems({"url": "u", "retries": 0}, validator) == set()
    assert problems({"retries": -1, "more": 1}, validator) == {"", "retries"}
    assert schema["title"] == "options of shop:Shop"
    assert "s3cret" not in json.dumps(schema)
    assert "no `Options` model" in options_schema(Bare, "shop:Bare")["description"]


class Odd(BaseModel):
    """Options of a type that JSON has no word for."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    validator: Draft202012Validator


class OddShop(Shop):
    """A processor with such options."""

    Options = Odd  # type: ignore[assignment]


def test_options_that_no_schema_can_say_are_named() -> None:
    """With what to do about it."""
    with pytest.raises(ConfigError, match=r"shop:Odd: Odd has no JSON Schema: .*WithJsonSchema"):
        options_schema(OddShop, "shop:Odd")
