"""Values from the environment and from flags: which key they mean, who wins, and what is refused."""

from __future__ import annotations

import pytest

from inbound.config import Loaded, load
from inbound.errors import ConfigError

FILE = """\
kafka: {bootstrap.servers: "a:9092"}
channels:
  orders:
    topics: [orders]
    group: g
    workers: 2
    processor: {type: simple, options: {Mode: every-batch, nested: {depth: 1}}}
  web-shop.eu:
    topics: [shop]
    group: g
    processor: {type: simple}
"""


def loaded(overrides: dict[str, str] | None = None, **environ: str) -> Loaded:
    """Return FILE with the environment `INBOUND__<name>=value` and the flags."""
    variables = {f"INBOUND__{name}": value for name, value in environ.items()}
    return load(FILE, filename="inbound.yaml", environ=variables, overrides=overrides or {})


def refusal(overrides: dict[str, str] | None = None, **environ: str) -> str:
    """Return the message that the environment and the flags are refused with."""
    with pytest.raises(ConfigError) as caught:
        loaded(overrides, **environ)
    return str(caught.value)


def test_a_flag_goes_before_the_environment_and_that_before_the_file() -> None:
    """Each value says where it comes from."""
    path = "channels.orders.workers"
    by_file, by_variable = loaded(), loaded(CHANNELS__ORDERS__WORKERS="8")
    by_flag = loaded({path: "9"}, CHANNELS__ORDERS__WORKERS="8")

    seen = [(one.config.channels["orders"].workers, one.origins[path]) for one in (by_file, by_variable, by_flag)]
    assert seen == [(2, "inbound.yaml:6"), (8, "environment INBOUND__CHANNELS__ORDERS__WORKERS"), (9, "flag")]


def test_every_kind_of_value_can_be_set_by_the_environment() -> None:
    """Text stays text, also where YAML reads it otherwise; numbers, sizes, lists and parts not in the file work too."""
    config = loaded(
        CHANNELS__ORDERS__GROUP="no",
        CHANNELS__ORDERS__CONSUMER_ID="123",
        CHANNELS__ORDERS__TOPICS="a, b",
        CHANNELS__ORDERS__READER__BATCH_BYTES="2MiB",
        CHANNELS__ORDERS__ON_ERROR__MAX_ATTEMPTS="3",
        CHANNELS__WEB_SHOP_EU__IDLE_TIME="5s",
        ZOOKEEPER__CHROOT="/kafka",
        ADMIN__LISTEN="127.0.0.1:8081",  # the default, but given: it must be free
        KAFKA__BOOTSTRAP_SERVERS="b:9092,c:9092",  # a variable's name holds no dots
        KAFKA__FETCH_MAX_WAIT_MS="250",
        KAFKA__CHECK_CRCS="false",
    ).config

    orders, shop = config.channels["orders"], config.channels["web-shop.eu"]
    assert (orders.group, orders.consumer_id, orders.topics) == ("no", "123", ("a", "b"))
    assert (orders.reader.batch_bytes, orders.on_error.max_attempts, shop.idle_time) == (2 * 2**20, 3, 5.0)
    assert (config.zookeeper.chroot, config.admin.listen, config.admin.given) == ("/kafka", "127.0.0.1:8081", True)
    assert config.kafka == {"bootstrap.servers": "b:9092,c:9092", "check.crcs": False, "fetch.max.wait.ms": 250}


def test_options_of_a_processor_are_read_as_yaml_would() -> None:
    """Only the processor knows their types, so `8` is a number; quotes make text of it. Existing keys keep their case."""
    found = loaded(
        CHANNELS__ORDERS__PROCESSOR__OPTIONS__MODE='"8"',
        CHANNELS__ORDERS__PROCESSOR__OPTIONS__NESTED__DEPTH="8",
        CHANNELS__ORDERS__PROCESSOR__OPTIONS__PERIOD="30s",
        CHANNELS__ORDERS__PROCESSOR__OPTIONS__SINKS="[log, {type: jsonl, path: x}]",
        CHANNELS__ORDERS__TOPICS="[a, b]",
    )

    orders = found.config.channels["orders"]
    assert orders.processor.options == {
        "Mode": "8",
        "nested": {"depth": 8},
        "period": "30s",
        "sinks": ["log", {"type": "jsonl", "path": "x"}],
    }
    assert orders.topics == ("a", "b")
    assert found.origins["channels.orders.processor.options.nested.depth"].startswith("environment INBOUND__")


@pytest.mark.parametrize("name", ["INBOUND_KAFKA__CLIENT_ID", "inbound_channels__orders__workers"])
def test_one_underscore_too_few_is_noticed(name: str) -> None:
    """Such a variable would do nothing, unnoticed."""
    with pytest.raises(ConfigError) as caught:
        load(FILE, filename="inbound.yaml", environ={name: "1"})

    rest = name.partition("_")[2]
    assert str(caught.value) == f"environment {name}: begins with one underscore too few; did you mean INBOUND__{rest}?"


def test_a_flag_finds_names_with_dots() -> None:
    """The dotted path of a flag is read against the file's own channel names."""
    config = loaded({"channels.web-shop.eu.workers": "3", "kafka.client.id": "me"}).config

    assert config.channels["web-shop.eu"].workers == 3
    assert config.kafka["client.id"] == "me"


def test_a_channel_called_options_is_a_channel() -> None:
    """Free keys are those of a processor's options, not of everything of that name."""
    text = "channels: {options: {topics: [a], group: g, processor: {type: simple}}}"
    with pytest.raises(ConfigError, match=r"channels\.options\.wokers: unknown key; did you mean workers"):
        load(text, filename="f", environ={"INBOUND__CHANNELS__OPTIONS__WOKERS": "1"})


def test_other_variables_are_left_alone() -> None:
    """Only names with the prefix are ours."""
    variables = {"INBOUND_HOME": "/x", "PATH": "/bin", "XINBOUND__A": "1", "INBOUND_ADMIN_PORT": "tcp://x"}
    assert load(FILE, filename="inbound.yaml", environ=variables).config == loaded().config


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("CHANNELS__ORDERS__WORKERS", "x", "channels.orders.workers: need a whole number, got 'x'"),
        ("CHANNELS__ORDERS__WORKERS", "0", "channels.orders.workers: need at least 1, got 0"),
        ("CHANNELS__ORDERS__WORKERS", "", "channels.orders.workers: need a whole number, got ''"),
        ("CHANNELS__ORDERS__IDLE_TIME", "10", "channels.orders.idle_time: need a duration such as 10s (units: ms, s, "
                                              "m, h, d), got '10'"),
        ("CHANNELS__ORDRS__WORKERS", "1", "channels: no channel 'ordrs' in the file; did you mean orders? it has "
                                         "orders, web-shop.eu"),
        ("CHANNELS__WEB_SHOP__WORKERS", "1", "channels: no channel 'web_shop' in the file; did you mean web-shop.eu? it has "
                                             "orders, web-shop.eu"),
        ("CHANNELS__ORDERS__WORKERS__X", "1", "channels.orders.workers: is one value, and has no 'x' in it"),
        ("CHANNELS__ORDERS__READER__BATCH_BYTE", "1", "channels.orders.reader.batch_byte: unknown key; did you mean "
                                                      "batch_bytes? allowed: batch_bytes, client, idle_wait, "
                                                      "max_batch_bytes, max_batch_records, max_decompressed_bytes, prefetch_bytes"),
        ("CHANNELS__ORDERS__READER", "1", "channels.orders.reader: names a whole section; name one value of it: "
                                          "client, batch_bytes, max_batch_records, max_batch_bytes, prefetch_bytes, "
                                          "max_decompressed_bytes, idle_wait"),
        ("ZOOKEPER__HOSTS", "1", "zookeper: unknown key; did you mean zookeeper? allowed: admin, channels, controller, "
                                 "explain, ingress, kafka, ledger, logging, manifests, profiling, reset, tracing, zookeeper"),
        ("KAFKA__FETCH_MAX_WAIT_MS", "5s", "kafka.fetch.max.wait.ms: need a whole number without a unit (milliseconds), got "
                                           "'5s'"),
        ("KAFKA__BOOTSTRAP_SERVRS", "a:1", "kafka.bootstrap_servrs: unknown Kafka property; did you mean bootstrap.servers?"),
        ("CHANNELS__ORDERS__PROCESSOR__OPTIONS__MODE", "[a", "channels.orders.processor.options.Mode: need YAML such as [a, b] "
                                                             "or {a: 1}, or text in quotes"),
        ("KAFKA__GROUP_ID", "g", "kafka.group.id: is not set here: set channels.<name>.group instead"),
        ("CHANNELS__ORDERS__PROCESSOR__OPTIONS__MODE__X", "1", "channels.orders.processor.options.Mode.x: cannot be "
                                                               "set, because channels.orders.processor.options.Mode "
                                                               "is not a mapping"),
        ("CHANNELS__ORDERS__PROCESSOR__OPTIONS__", "1", "channels.orders.processor.options: names a whole section; "
                                                        "name one value of it: Mode, nested"),
    ],
)  # fmt: skip
def test_a_variable_that_fits_nowhere_is_named(name: str, value: str, problem: str) -> None:
    """The variable stands where else the file and line would."""
    assert refusal(None, **{name: value}) == f"environment INBOUND__{name}: {problem}"


def test_two_variables_for_one_value_are_refused() -> None:
    """Which of the two would win is not guessed at. A flag that fits nowhere is named as a variable is."""
    assert refusal(CHANNELS__ORDERS__WORKERS="1", channels__orders__workers="2") == (
        "environment INBOUND__channels__orders__workers: channels.orders.workers: "
        "INBOUND__CHANNELS__ORDERS__WORKERS sets it too; keep one"
    )
    assert refusal({"channels.orders.wokers": "1"}).startswith(
        "flag channels.orders.wokers: channels.orders.wokers: unknown key; did you mean workers? allowed: "
    )


def test_two_channels_that_a_variable_cannot_tell_apart_are_refused() -> None:
    """`a-b` and `a_b` are one name in the environment."""
    text = "channels:\n" + "".join(
        f"  {n}: {{topics: [x], group: g, processor: {{type: p}}}}\n" for n in ("a-b", "a_b")
    )
    with pytest.raises(ConfigError) as caught:
        load(text, filename="f", environ={"INBOUND__CHANNELS__A_B__WORKERS": "1"})
    assert (
        str(caught.value) == "environment INBOUND__CHANNELS__A_B__WORKERS: channels: a-b and a_b both match; rename one"
    )
