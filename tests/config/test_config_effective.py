"""What a good configuration becomes: values, places, the rendered form; and that nothing slips through as a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from inbound.config import ChannelConfig, Config, ReaderConfig, load, read_text, render, schema
from inbound.errors import ConfigError

EXAMPLES = Path(__file__).parent.parent.parent / "config" / "examples"
MINIMAL, FULL = (read_text(EXAMPLES / f"{name}.yaml") for name in ("minimal", "full"))


def fields(model: type[BaseModel]) -> set[str]:
    """Return the dotted names of all keys that a model and those inside it have."""
    found = set()
    for name, info in model.model_fields.items():
        found.add(name)
        inner = [p for part in schema.alternatives(info.annotation) for p in (part, schema.step(part, "x"))]
        for part in inner:
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= {f"{name}.{below}" for below in fields(part)}
    return found


def keys(tree: Any, path: str = "") -> set[str]:
    """Return the dotted names of all keys of a document; the channels' own names are left out."""
    if not isinstance(tree, dict):
        return set()
    found = set()
    for key, value in tree.items():
        here = path if path == "channels" else f"{path}.{key}".removeprefix(".")
        found |= {here} | keys(value, here if path != "channels" else "channels.")
    return {name.replace("..", ".") for name in found}


def test_the_minimal_example_has_the_defaults_of_the_full_one() -> None:
    """The full example shows defaults, so both mean the same but for the changes that it names."""
    minimal, full = (load(text, filename="f").config for text in (MINIMAL, FULL))

    assert minimal.channels["orders"] == full.channels["orders"]
    open_zookeeper = full.zookeeper.model_copy(update=dict.fromkeys(("auth", "tls", "acl")))
    plain_admin = full.admin.model_copy(update={"tls": None})
    assert (minimal.zookeeper, minimal.controller, minimal.admin, minimal.ledger, minimal.logging) == (
        open_zookeeper,
        full.controller,
        plain_admin,
        full.ledger,
        full.logging,
    )
    assert minimal.kafka == {"bootstrap.servers": "127.0.0.1:9092"}


def test_the_defaults_are_those_that_are_promised() -> None:
    """In seconds and bytes."""
    config = load(MINIMAL, filename="f").config
    orders = config.channels["orders"]

    assert (config.zookeeper.session_timeout, config.zookeeper.hosts, config.zookeeper.chroot) == (
        10.0,
        "127.0.0.1:2181",
        "",
    )
    assert config.controller.model_dump() == {
        "rebalance_interval": 60.0,
        "rebalance_delay": 0.3,
        "join_delay": 3.0,
        "commit_interval": 0.02,
    }
    assert (config.admin.host, config.admin.port, config.admin.given) == ("127.0.0.1", 8081, False)
    assert (config.ledger.path, config.ledger.retention) == (Path("ledger"), 604800.0)
    assert (orders.workers, orders.idle_time, orders.shutdown_timeout) == (5, 60.0, 25.0)
    assert orders.on_error.model_dump() == {"max_attempts": 10, "then": "hold", "dead_letter_topic": None}
    assert orders.reader.model_dump() == {
        "client": "kafka-python",
        "batch_bytes": 2**20,
        "max_batch_records": 2000,
        "max_batch_bytes": 10 * 2**20,
        "max_decompressed_bytes": 64 * 2**20,
        "prefetch_bytes": 64 * 2**20,
        "idle_wait": 0.1,
    }


def test_an_ingress_alone_is_a_configuration() -> None:
    """It needs no channel; `{}` is one with all defaults."""
    config = load("ingress: {}", filename="f").config

    assert config.ingress is not None
    assert (config.ingress.host, config.ingress.port, config.channels) == ("127.0.0.1", 8080, {})


def test_every_key_there_is_appears_in_the_full_example() -> None:
    """A new key without a line in the example fails here."""
    missing = fields(Config) - keys(yaml.safe_load(FULL))
    shown_at_a_channel = {name for name in missing if name.startswith("manifests.settings.coordinator.")}
    assert missing - shown_at_a_channel == set()


def test_what_is_rendered_loads_as_the_same_configuration() -> None:
    """With every value changed from its default, and with texts that YAML would misread."""
    text = """
zookeeper: {hosts: "a:1,b:2", chroot: /x, session_timeout: 1500ms}
kafka: {client.id: "no", fetch.max.wait.ms: 5, check.crcs: false}
ledger: {type: none, path: "a: #b", retention: 1.5h, on_failure: degrade}
channels:
  "123":
    topics: ["1e3", "null"]
    group: "yes"
    consumer_id: "2024-01-01"
    on_error: {max_attempts: 0, then: dead-letter, dead_letter_topic: "0x1"}
    reader: {batch_bytes: 1MB, idle_wait: 0.25ms}
    processor: {type: "a.b:C", options: {a: [1, 2.5, "off", {b: }], "c d": "two\\nlines\\x07 and é", e: -.inf, f: {}}}
  pattern: {topics_pattern: "a\\\\.b|c", group: g, processor: {type: simple}}
"""
    config = load(text, filename="f").config

    assert load(render(config), filename="g").config == config


def test_the_rendered_form_says_where_each_value_comes_from() -> None:
    """As `check --show` prints it."""
    loaded = load(MINIMAL, filename="m.yaml", environ={"INBOUND__CHANNELS__ORDERS__WORKERS": "8"})
    lines = render(loaded.config, loaded.origins).splitlines()

    assert "    group: orders-svc                # m.yaml:5" in lines
    assert "    workers: 8                       # environment INBOUND__CHANNELS__ORDERS__WORKERS" in lines
    assert "  session_timeout: 10s               # default" in lines
    assert sum("#" in line for line in lines) == len([o for o in loaded.origins if not unseen(o)])


def unseen(path: str) -> bool:
    """Say whether `check --show` leaves it out: what was not given instead of something else, and no manifests."""
    return path.startswith("manifests.") or path.endswith((".topics_pattern", ".subscriptions"))


def test_secret_options_are_hidden() -> None:
    """By their names, at any depth."""
    text = MINIMAL.replace("{sinks: [log]}", "{sinks: [{api-key: s3cret, url: u}], token: s3cret}")

    rendered = render(load(text, filename="f").config)

    assert "s3cret" not in rendered
    assert "url: u" in rendered


def test_windows_line_ends_and_a_byte_order_mark_are_no_obstacle(tmp_path: Path) -> None:
    """Lines are still counted right."""
    file = tmp_path / "w.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())

    loaded = load(read_text(file), filename="w.yaml")

    assert loaded.config == load(MINIMAL, filename="f").config
    assert loaded.origins["channels.orders.group"] == "w.yaml:5"


def test_channels_can_share_settings_by_a_merge_key() -> None:
    """YAML's own anchors and `<<`; what a channel says itself goes first."""
    text = """
channels:
  a: &a {topics: [a], group: g, workers: 2, processor: {type: simple}}
  b: {<<: *a, topics: [b]}
"""
    channels = load(text, filename="f").config.channels

    assert (channels["b"].topics, channels["b"].workers) == (("b",), 2)


def test_models_made_by_hand_take_seconds_and_bytes() -> None:
    """Units are for what people write; code passes what the attributes hold. The bounds are the same."""
    assert ReaderConfig(batch_bytes=1000, idle_wait=0.05).idle_wait == 0.05
    with pytest.raises(ValueError, match="need more than 0s, got 0s"):
        ReaderConfig(idle_wait=0.0)


def test_a_configuration_cannot_be_changed() -> None:
    """A reload makes a new one."""
    channel = load(MINIMAL, filename="f").config.channels["orders"]
    with pytest.raises(ValueError, match="frozen"):
        channel.workers = 3
    assert isinstance(channel, ChannelConfig)


class Sink(BaseModel):
    """Options of a made-up plugin's part."""

    model_config = ConfigDict(extra="forbid")
    url: str
    retries: int = 3


class Options(BaseModel):
    """Options of a made-up plugin, as users without our own types write them."""

    model_config = ConfigDict(extra="forbid")
    sinks: list[Sink] = Field(min_length=1)
    token: str = ""
    limit: int | None = None


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        (
            ["token: 12345", "limit: many", "limt: 1", "sinks:", "- url: x", "  retries: no", "- {}"],
            [
                "8: token: need text, got something else",
                "9: limit: need a whole number, got 'many'",
                "10: limt: unknown key; did you mean limit? allowed: limit, sinks, token",
                "14: sinks[1].url: missing; this key is required",
            ],
        ),
        # An entry that is wrong is reported as that, not as missing from the count.
        (["sinks: []"], ["8: sinks: need at least 1, got 0"]),
        (["sinks: x"], ["8: sinks: need a list, got 'x'"]),
        (["sinks: [{url: u, retries: 1.5}]"], ["8: sinks[0].retries: need a whole number, got 1.5"]),
    ],
)
def test_wrong_options_of_a_plugin_are_reported_with_file_and_line(options: list[str], problems: list[str]) -> None:
    """A plain pydantic model is enough; the words are the same as for inbound's own keys."""
    head = "channels:\n  orders:\n    topics: [orders]\n    group: g\n    processor:\n      type: mine:Mine\n      options:\n"
    loaded = load(head + "".join(f"        {line}\n" for line in options), filename="inbound.yaml")
    where = "channels.orders.processor.options"
    with pytest.raises(ConfigError) as caught:
        loaded.validate(Options, where, loaded.config.channels["orders"].processor.options)

    said = [line.replace(f"{where}.", "").removeprefix("inbound.yaml:") for line in str(caught.value).splitlines()]
    assert said == problems


def scalars(tree: Any, *path: Any) -> list[tuple[Any, ...]]:
    """Return the paths of all scalars, and of the keys around them, of a document."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else []
    return [found for key, value in inner for found in ((*path, key), *scalars(value, *path, key))]


DOCUMENT = yaml.safe_load(FULL)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "0", "-1s", "1e9d", "..", "a/b", "[", "(?P<", "\ud800", "*", "0MiB", "a:1", "\x00"])
    | st.lists(st.text(max_size=2) | st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=2) | st.sampled_from(["type"]), st.none() | st.integers(), max_size=2)
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(scalars(DOCUMENT)), value=VALUES, rename=st.booleans())
def test_any_change_of_the_full_example_loads_or_is_refused(path: tuple[Any, ...], value: Any, rename: bool) -> None:
    """With anything in the place of a value or a key, the answer is a configuration or a ConfigError by line."""
    changed = yaml.safe_load(FULL)
    around = changed
    for key in path[:-1]:
        around = around[key]
    if rename and isinstance(around, dict) and isinstance(value, (str, int, float, bool)):
        around[value] = around.pop(path[-1])
    else:
        around[path[-1]] = value
    text = yaml.safe_dump(changed, allow_unicode=False)
    problems: list[str] = []
    try:
        config = load(text, filename="f").config
        again = load(render(config), filename="g").config
        assert again == config or render(again) == render(config)  # NaN, as a plugin's option, does not equal itself
    except ConfigError as refusal:
        problems = str(refusal).split("\n")
    assert [line for line in problems if not (line.startswith("f:") and line.isprintable())] == []


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="ab:- \n\t[]{}'\"#&*!|>%@?,<~", max_size=40))
def test_any_text_loads_or_is_refused(text: str) -> None:
    """Nothing that a file may hold ends in another exception."""
    with pytest.raises(ConfigError):
        load(text, filename="f")
