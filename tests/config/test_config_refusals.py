"""Wrong configurations: each is refused with file, line, key, what is needed and what was given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inbound.config import document, load, read_text
from inbound.errors import ConfigError

CHANNEL_KEYS = (
    "allowed: auto_offset_reset, consumer_id, coordinator, group, idle_time, isolation, max_uncommitted_records, offsets, "
    "on_error, on_truncation, processor, reader, shutdown_timeout, subscriptions, topics, topics_pattern, workers"
)
DURATION = "need a duration such as 10s (units: ms, s, m, h, d), got "
SIZE = "need a size such as 1MiB (units: B, KiB, MiB, GiB, kB, KB, MB, GB), got "
COORDINATOR = "need one of dynamic, fixed-count, static, or module:Class, got "
PATH = "which cannot be part of a ZooKeeper path; choose another name"
TOPIC = "need a Kafka topic (1 to 249 of a-z A-Z 0-9 . _ -, not . or ..), got "


def refusal(text: str) -> str:
    """Return the message that `text` is refused with."""
    with pytest.raises(ConfigError) as caught:
        load(text, filename="inbound.yaml")
    return str(caught.value)


def channel(line: str) -> str:
    """Return a configuration whose line 3 is `line`, a key of the channel `orders`, before the keys it must have."""
    rest = [f"    {key}" for key in ("topics: [orders]", "group: g", "processor: {type: simple}")]
    return "\n".join(
        [
            "channels:",
            "  orders:",
            f"    {line}",
            *(r for r in rest if r.split(":")[0].strip() not in re.findall(r"[a-z_]+(?=:)", line)[:1]),
        ]
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("wokers: 3", "wokers: unknown key; did you mean workers? " + CHANNEL_KEYS),
        ("xyz: 3", "xyz: unknown key; " + CHANNEL_KEYS),
        ("workers: 0", "workers: need at least 1, got 0"),
        ("workers: 1001", "workers: need at most 1000, got 1001"),
        (f"max_uncommitted_records: {10**19}", f"max_uncommitted_records: need at most 1000000000, got {10**19}"),
        ("workers: -1", "workers: need at least 1, got -1"),
        ("workers: five", "workers: need a whole number, got 'five'"),
        ("workers: '5'", "workers: need a whole number, got '5'"),
        ("workers: 2.5", "workers: need a whole number, got 2.5"),
        ("workers: yes", "workers: need a whole number, got true"),
        ("workers: 1:30", "workers: need a whole number, got '1:30'"),
        ("workers: 010", "workers: need a whole number, got '010'"),
        ("workers: .nan", "workers: need a whole number, got nan"),
        (f"workers: {'9' * 5000}", f"workers: need a whole number, got '{'9' * 76}..."),
        (f"workers: {'9' * 90}", "workers: need at most 1000, got a huge number"),
        ("workers:", "workers: need a whole number, got nothing"),
        ("idle_time: 10", "idle_time: " + DURATION + "10"),
        ("idle_time: 10x", "idle_time: " + DURATION + "'10x'"),
        ("idle_time: 0", "idle_time: need more than 0s, got 0s"),
        ("shutdown_timeout: -5s", "shutdown_timeout: need at least 0s, got -5s"),
        (
            "isolation: read_comitted",
            "isolation: need one of read_committed, read_uncommitted, got 'read_comitted'; "
            "did you mean read_committed?",
        ),
        ("auto_offset_reset: none", "auto_offset_reset: need one of earliest, latest, got 'none'"),
        ("on_truncation: on", "on_truncation: need one of hold, earliest, latest, got on, which YAML reads as true"),
        ("coordinator: {type: dynamc}", f"coordinator.type: {COORDINATOR}'dynamc'; did you mean dynamic?"),
        ("coordinator: {type: 'a b:C'}", f"coordinator.type: {COORDINATOR}'a b:C'"),
        ("coordinator: {type: 3}", 'coordinator.type: need text, got 3; put it in quotes: "3"'),
        ("coordinator: {count: 4}", f"coordinator.type: {COORDINATOR}nothing"),
        ("coordinator: {type: fixed-count}", "coordinator.count: missing; this key is required"),
        ("coordinator: {type: fixed-count, count: 0}", "coordinator.count: need at least 1, got 0"),
        ("coordinator: {type: fixed-count, count: 1.5}", "coordinator.count: need a whole number, got 1.5"),
        (
            "coordinator: {type: fixed-count, count: 1, partitions: {}}",
            "coordinator.partitions: unknown key; allowed: count, type",
        ),
        ("coordinator: {type: static}", "coordinator.partitions: missing; this key is required"),
        (
            "coordinator: {type: static, partitions: {}}",
            "coordinator.partitions: need the partitions of at least one topic, such as {orders: [0, 1]}, got an empty mapping",
        ),
        (
            "coordinator: {type: static, partitions: [0]}",
            "coordinator.partitions: need a mapping such as {orders: [0, 1]}, got a list",
        ),
        (
            "coordinator: {type: static, partitions: {orders: []}}",
            "coordinator.partitions.orders: need at least one partition such as [0, 1], got an empty list",
        ),
        (
            "coordinator: {type: static, partitions: {orders: 0}}",
            "coordinator.partitions.orders: need a list such as [0, 1], got 0",
        ),
        (
            "coordinator: {type: static, partitions: {orders: [1, -1]}}",
            "coordinator.partitions.orders[1]: need at least 0, got -1",
        ),
        (
            "coordinator: {type: static, partitions: {orders: [x]}}",
            "coordinator.partitions.orders[0]: need a whole number, got 'x'",
        ),
        (
            "coordinator: {type: static, partitions: {orders: [1, 1]}}",
            "coordinator.partitions.orders[1]: lists 1 twice; keep one",
        ),
        (
            "coordinator: {type: static, partitions: {order: [1]}}",
            "coordinator.partitions.order: is not read by this channel; need one of its topics: orders",
        ),
        ("coordinator: {type: 'm:C', count: 1}", "coordinator.count: unknown key; allowed: options, type"),
        ("coordinator: {type: 'm:C', options: 1}", "coordinator.options: need a mapping, got 1"),
        ("coordinator: {type: dynamic, count: 4}", "coordinator.count: unknown key; allowed: type"),
        ("coordinator: dynamic", "coordinator: need a mapping, got 'dynamic'"),
        ("group: no", 'group: need text, got no, which YAML reads as false; put it in quotes: "no"'),
        ("group: 123", 'group: need text, got 123; put it in quotes: "123"'),
        ("group:", "group: need text, got nothing"),
        ("group: ''", "group: need a name, got empty text"),
        ("group: a/b", f"group: 'a/b' holds '/', {PATH}"),
        ('group: "a\\tb"', f"group: 'a\\tb' holds '\\t', {PATH}"),
        ('group: "a\\ud800"', f"group: 'a\\ud800' holds '\\ud800', {PATH}"),
        ("group: ..", "group: '..' cannot be part of a ZooKeeper path; choose another name"),
        ("group: ' a'", "group: ' a' has blanks at its ends; remove them"),
        ("consumer_id: a/b", f"consumer_id: 'a/b' holds '/', {PATH}"),
        ("topics: orders", "topics: need a list such as [orders], got 'orders'"),
        ("topics: []", "topics: need at least one topic, got an empty list"),
        ("topics: [a, a]", "topics: lists 'a' twice; keep one"),
        ("topics: [a, b/c]", "topics[1]: " + TOPIC + "'b/c'"),
        ("topics: [..]", "topics[0]: " + TOPIC + "'..'"),
        (f"topics: [{'x' * 250}]", f"topics[0]: {TOPIC}'{'x' * 76}..."),
        ("topics: [1]", 'topics[0]: need text, got 1; put it in quotes: "1"'),
        ("topics_pattern: a.*", "topics_pattern: give topics or topics_pattern, not both"),
        (
            "topics_pattern: '('",
            "topics_pattern: need a regular expression, got '(': missing ), unterminated subpattern at position 0",
        ),
        ("topics_pattern: ''", "topics_pattern: need a regular expression, got empty text"),
        ("on_error: {then: dead-letter}", "on_error.dead_letter_topic: needs a topic, because then is dead-letter"),
        (
            "on_error: {dead_letter_topic: x}",
            "on_error.dead_letter_topic: is used only with then: dead-letter, but then is hold; change one of the two",
        ),
        (
            "on_error: {then: dead-letter, dead_letter_topic: orders}",
            "on_error.dead_letter_topic: orders is read by this channel (topics: orders); a record that fails would go round "
            "without end; choose a topic that it does not read",
        ),
        ("on_error: {max_attempts: -1}", "on_error.max_attempts: need at least 0, got -1"),
        (
            "on_error: {then: skipp}",
            "on_error.then: need one of hold, skip, dead-letter, got 'skipp'; did you mean skip?",
        ),
        ("reader:", "reader: need a mapping, got nothing; write its keys below it, or remove it"),
        ("reader: [1]", "reader: need a mapping, got a list"),
        (
            "reader: {client: confluent}",
            "reader.client: need one of kafka-python, confluent-kafka, got 'confluent'; did you mean confluent-kafka?",
        ),
        ("reader: {batch_bytes: 100}", "reader.batch_bytes: " + SIZE + "100"),
        ("reader: {batch_bytes: 0}", "reader.batch_bytes: need at least 1B, got 0B"),
        ("reader: {max_batch_bytes: 1KiB}", "reader.max_batch_bytes: need at least batch_bytes (1MiB), got 1KiB"),
        ("reader: {prefetch_bytes: 1B}", "reader.prefetch_bytes: need at least batch_bytes (1MiB), got 1B"),
        ("reader: {max_batch_records: 0}", "reader.max_batch_records: need at least 1, got 0"),
        (
            f"reader: {{max_batch_records: {2**63 - 1}}}",
            f"reader.max_batch_records: need at most 1000000000, got {2**63 - 1}",
        ),
        ("reader: {batch_bytes: 1GiB}", "reader.batch_bytes: need at most 1000000000B, got 1GiB"),
        ("reader: {idle_wait: 10m}", "reader.idle_wait: need at most 5m, got 10m"),
        ("reader: {idle_wait: 0s}", "reader.idle_wait: need more than 0s, got 0s"),
        ("processor: simple", "processor: need a mapping, got 'simple'"),
        ("processor: {}", "processor.type: missing; this key is required"),
        ("processor: {type: 'a b'}", "processor.type: need the name of a processor, or module:Class, got 'a b'"),
        ("processor: {type: 'a:'}", "processor.type: need the name of a processor, or module:Class, got 'a:'"),
        ("processor: {type: simple, options: 1}", "processor.options: need a mapping, got 1"),
    ],
)
def test_a_wrong_channel_key_is_refused_with_its_line(line: str, problem: str) -> None:
    """Line 3 holds the one thing that is wrong, and is the one thing named."""
    assert refusal(channel(line)) == f"inbound.yaml:3: channels.orders.{problem}"


GOOD = "channels: {orders: {topics: [orders], group: g, processor: {type: simple}}}\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "zookeper: {}",
            "zookeper: unknown key; did you mean zookeeper? allowed: admin, channels, controller, explain, "
            "ingress, kafka, ledger, logging, manifests, profiling, reset, tracing, zookeeper",
        ),
        (
            "zookeeper: {auths: x}",
            "zookeeper.auths: unknown key; did you mean auth? allowed: acl, auth, chroot, hosts, session_timeout, tls",
        ),
        ("zookeeper: {session_timeout: 500ms}", "zookeeper.session_timeout: need at least 1s, got 500ms"),
        ("controller: {commit_interval: 1h}", "controller.commit_interval: need at most 1s, got 1h"),
        ("zookeeper: {session_timeout: 25d}", "zookeeper.session_timeout: need at most 24d, got 25d"),
        (
            "zookeeper: {hosts: 'zk:2181/kafka'}",
            "zookeeper.hosts: holds a path: 'zk:2181/kafka'; put the path into zookeeper.chroot",
        ),
        ("zookeeper: {hosts: 'a:2181,,b'}", "zookeeper.hosts: need host:port, with commas between several, got ''"),
        (
            "zookeeper: {hosts: 'a:99999'}",
            "zookeeper.hosts: need host:port, with commas between several, got 'a:99999'",
        ),
        (
            "zookeeper: {chroot: kafka}",
            "zookeeper.chroot: need a path that starts with /, such as /kafka, or empty text, got 'kafka'",
        ),
        ("zookeeper: {chroot: /a/}", "zookeeper.chroot: need a path that does not end with /, got '/a/'"),
        ("zookeeper: {chroot: /a//b}", "zookeeper.chroot: need a path without //, got '/a//b'"),
        (
            "zookeeper: {chroot: /a/..}",
            "zookeeper.chroot: '..' cannot be part of a ZooKeeper path; choose another name",
        ),
        ("controller: {rebalance_delay: 300}", "controller.rebalance_delay: " + DURATION + "300"),
        ("admin: {listen: 8081}", 'admin.listen: need text, got 8081; put it in quotes: "8081"'),
        ("admin: {token_file: 7}", "admin.token_file: need text, got something else"),  # it may be the token itself
        ('admin: {token_file: "s3cr\\net"}', "admin.token_file: need the path of a file"),
        ("admin: {listen: ':8081'}", "admin.listen: need host:port such as 127.0.0.1:8081, got ':8081'"),
        ("ledger: {type: redis}", "ledger.type: need one of files, kafka, none, got 'redis'"),
        ("ledger: {type: ~}", "ledger.type: need one of files, kafka, none, got nothing"),
        ("ledger: {path: ''}", "ledger.path: need the path of a folder, got ''"),
        ("ledger: {retention: 0}", "ledger.retention: need more than 0s, got 0s"),
        ("kafka: []", "kafka: need a mapping of Kafka client properties, got a list"),
        (
            "ledger: !!python/object:os.system {}",
            "ledger: tags (!) are not allowed; remove it, or put text that starts with ! in quotes",
        ),
        ("ledger: &l {path: *l}", "ledger.path: an alias (*) that contains itself; write the value out"),
        ("ledger: {{ path }}: x", None),
    ],
)
def test_a_wrong_value_elsewhere_is_refused_with_its_line(line: str, problem: str | None) -> None:
    """Line 2 holds the one thing that is wrong."""
    expected = (
        f"inbound.yaml:2: {problem}" if problem else "inbound.yaml:2: not YAML: mapping values are not allowed here"
    )
    assert refusal(GOOD + line) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "inbound.yaml: is empty; it needs at least `channels`"),
        ("# nothing\n", "inbound.yaml: is empty; it needs at least `channels`"),
        ("- a\n", "inbound.yaml:1: need a mapping of keys such as `channels:` at the top level"),
        ("just text", "inbound.yaml:1: need a mapping of keys such as `channels:` at the top level"),
        ("kafka: {}", "inbound.yaml: channels: missing; this key is required"),
        ("channels: {}", "inbound.yaml:1: channels: need at least one channel, got none"),
        ("channels:", "inbound.yaml:1: channels: need a mapping, got nothing; write its keys below it, or remove it"),
        ("channels:\n\torders: 1\n", "inbound.yaml:2: a tab where YAML needs spaces; replace it"),
        ("channels:\n  a: [1\n  b: 2\n", "inbound.yaml:3: not YAML: expected ',' or ']', but got ':' "
                                        "(while parsing a flow sequence, line 2)"),
        ("a: 'x\n", "inbound.yaml:2: not YAML: found unexpected end of stream "
                    "(while scanning a quoted scalar, line 1)"),
        ("a: 1\n---\nb: 2\n", "inbound.yaml:2: a second document begins here ('---'); only one is read"),
        ("a: 1\r\nb: \x00\r\n", "inbound.yaml:2: holds U+0000, which YAML does not allow; remove it"),
        ("a: *hunter2\n", "inbound.yaml:1: an alias (*) without its anchor (&), or an anchor given twice; put text "
                          "that starts so in quotes"),
        ("[" * 500, "inbound.yaml: nested too deeply to be a configuration"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_at_all_is_refused_with_a_reason(text: str, message: str) -> None:
    """Syntax errors say the line and, where PyYAML is cryptic, plain words; unquoted secrets are not repeated."""
    assert refusal(text) == message


def test_every_problem_is_named_at_once_in_the_order_of_the_file() -> None:
    """It does not take five runs of `check` to find five slips."""
    text = (
        "channels:\n  orders:\n    topics: [orders]\n    group: no\n    workers: 0\n    wokers: 1\n"
        "    reader: {batch_bytes: 5MiB, max_batch_bytes: 1MiB}\n    processor: {type: simple}\n"
        "    workers: 2\nkafka: {group.id: x}\n"
    )
    assert refusal(text).splitlines() == [
        'inbound.yaml:4: channels.orders.group: need text, got no, which YAML reads as false; put it in quotes: "no"',
        "inbound.yaml:5: channels.orders.workers: need at least 1, got 0",
        "inbound.yaml:6: channels.orders.wokers: unknown key; did you mean workers? " + CHANNEL_KEYS,
        "inbound.yaml:7: channels.orders.reader.max_batch_bytes: need at least batch_bytes (5MiB), got 1MiB",
        "inbound.yaml:9: channels.orders.workers: given twice, also in line 5; keep one",
        "inbound.yaml:10: kafka.group.id: is not set here: set channels.<name>.group instead",
    ]


def test_a_channel_without_its_keys_gets_an_error_that_names_them() -> None:
    """What is missing is reported at the channel it is missing from."""
    assert refusal("channels:\n\n  orders: {workers: 2}\n").splitlines() == [
        "inbound.yaml:3: channels.orders.group: missing; this key is required",
        "inbound.yaml:3: channels.orders.processor: missing; this key is required",
    ]
    without_topics = "channels:\n  orders: {group: g, processor: {type: simple}}\n"
    assert refusal(without_topics) == (
        "inbound.yaml:2: channels.orders.topics: missing; give topics (a list) or topics_pattern (a regular expression)"
    )


def test_a_dead_letter_topic_that_the_pattern_matches_is_refused() -> None:
    """Each record that fails was written to it, read from it, failed, and was written to it."""
    text = (
        "channels:\n  orders:\n    topics_pattern: 'ord.*'\n    group: g\n    processor: {type: simple}\n"
        "    on_error: {then: dead-letter, dead_letter_topic: DEAD}\n"
    )
    assert refusal(text.replace("DEAD", "orders.dead")) == (
        "inbound.yaml:6: channels.orders.on_error.dead_letter_topic: orders.dead is read by this channel (topics_pattern "
        "ord.*); a record that fails would go round without end; choose a topic that it does not read"
    )
    for dead in ("dead.orders", "__orders"):  # the whole name is matched, and Kafka's own never are
        load(text.replace("DEAD", dead), filename="inbound.yaml")


def test_one_member_cannot_be_in_two_channels() -> None:
    """Two channels of one group need two consumer ids: the second would evict the first without end."""
    text = "channels:\n" + "".join(
        f"  {name}: {{topics: [{name}], group: g, consumer_id: c1, processor: {{type: simple}}}}\n" for name in "ab"
    )
    assert refusal(text) == (
        "inbound.yaml:3: channels.b.consumer_id: channel a is already member 'c1' of group 'g'; "
        "give each its own consumer_id"
    )


def test_a_channel_name_must_fit_commands_and_variables() -> None:
    """Names with blanks or slashes could not be typed as an argument or an environment variable."""
    assert refusal("channels: {a b: {topics: [x], group: g, processor: {type: simple}}}") == (
        "inbound.yaml:1: channels.'a b': need a channel name (1 to 100 of a-z A-Z 0-9 . _ -, first a letter or digit), "
        "got 'a b'"
    )


def test_aliases_that_multiply_are_stopped() -> None:
    """A few lines that stand for billions of values end in a message, not in an empty memory."""
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert refusal("\n".join(layers)) == "inbound.yaml: more than 20000 values; are aliases (*) nested?"


def test_a_document_of_too_many_values_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """To take in all of 10 MB would take a minute and a GiB."""
    monkeypatch.setattr(document, "MOST_VALUES", 100)
    assert refusal("a:\n" + "- {b: c}\n" * 100) == (
        "inbound.yaml: more than 100 values in one document; put objects of manifests into documents of their own (---)"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, not UTF-8: each says which file and what to do."""
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"channels:\n  caf\xe9: {}\n")
    messages = []
    for path in (tmp_path / "none.yaml", tmp_path, latin):
        with pytest.raises(ConfigError) as caught:
            read_text(path)
        messages.append(str(caught.value).removeprefix(str(tmp_path)))
    assert messages == [
        "/none.yaml: no such file; name the configuration with -c",
        ": is a folder; name the file in it",
        "/latin.yaml:2: byte 0xe9 is not UTF-8; save the file as UTF-8",
    ]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{listen: 8080}", "inbound.yaml:1: ingress.listen: need text"),
        ("{listen: localhost}", "inbound.yaml:1: ingress.listen: need host:port such as"),
        ("{topics_pattern: '['}", "inbound.yaml:1: ingress.topics_pattern: need a regular expression"),
        ("{paths: {in: orders}}", "need a path that starts with /"),
        ("{hosts: {'shop.example:80': orders}}", "need the name of a host without a port"),
        ("{hosts: {shop: 'a b'}}", "inbound.yaml:1: ingress.hosts.shop: need a Kafka topic"),
        ("{create_partitions: 3}", "inbound.yaml:1: ingress.create_partitions: needs topics or topics_pattern"),
        ("{max_in_flight_bytes: 1MiB}", "inbound.yaml:1: ingress.max_in_flight_bytes: need at least max_request_bytes"),
        ("{client: java}", "ingress.client"),
        ("{tls: {}}", "ingress.tls.cert"),
        ("{tokenfile: x}", "inbound.yaml:1: ingress.tokenfile: unknown key"),
    ],
)
def test_a_wrong_ingress_is_refused(section: str, said: str) -> None:
    """With the place, and what to do."""
    assert said in refusal(f"ingress: {section}")
