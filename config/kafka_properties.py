"""The accepted Kafka client properties, under the names of the Java client.

Four kinds: those passed on to the client (`ACCEPTED`), those that inbound decides itself and that are set elsewhere or
not at all (`OWNED`), those that no reader of inbound can honour (`UNSUPPORTED`, refused, for they would have no effect),
and everything else, which is a slip of the pen. The spellings `bootstrap.servers`, `bootstrap_servers` and
`bootstrapServers` mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from inbound.config.secrets import is_secret_property
from inbound.config.units import shown
from inbound.config.values import has_port, need_text, wrong

Scalar = str | int | float | bool
DEFAULT_SERVERS = "127.0.0.1:9092"
#: What stands for the content of a file, as Kafka's own DirectoryConfigProvider and FileConfigProvider have it:
#: `${directory:/folder:file}` and `${file:/file.properties:key}`.
PLACEHOLDER = re.compile(r"\$\{(directory|file):([^:}]+):([^:}]+)\}")


@dataclass(frozen=True, slots=True)
class KafkaProperty:
    """One property of the Java client, and its values.

    `servers`: with commas; `jaas`: a login module.
    """

    name: str
    kind: Literal["text", "whole", "flag", "servers", "jaas"] = "text"
    at_least: int = 0
    choices: tuple[str, ...] = ()


#: Of the Java client: who logs in with a token, and what gets it one; and the latter's older name.
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OLD_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
_TABLE = (
    # Not Kafka's: a mounted folder with credentials under Knative's names; what is written beside it wins.
    KafkaProperty("secret"),
    KafkaProperty("bootstrap.servers", "servers"),
    KafkaProperty("client.id"),
    KafkaProperty("client.rack"),
    KafkaProperty("client.dns.lookup", choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    KafkaProperty("fetch.min.bytes", "whole"),
    KafkaProperty("fetch.max.bytes", "whole", 1),
    KafkaProperty("fetch.max.wait.ms", "whole"),
    KafkaProperty("max.partition.fetch.bytes", "whole", 1),
    KafkaProperty("check.crcs", "flag"),
    KafkaProperty("metadata.max.age.ms", "whole"),
    KafkaProperty("request.timeout.ms", "whole", 1),
    KafkaProperty("connections.max.idle.ms", "whole", 1),
    KafkaProperty("retry.backoff.ms", "whole"),
    KafkaProperty("reconnect.backoff.ms", "whole"),
    KafkaProperty("reconnect.backoff.max.ms", "whole"),
    KafkaProperty("receive.buffer.bytes", "whole", -1),
    KafkaProperty("send.buffer.bytes", "whole", -1),
    KafkaProperty("security.protocol", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    KafkaProperty("sasl.mechanism", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")),
    KafkaProperty("sasl.jaas.config", "jaas"),
    KafkaProperty("sasl.kerberos.service.name"),
    # Java needs to be told; here it is the only way there is.
    KafkaProperty("sasl.login.callback.handler.class", choices=(BEARER_HANDLER, _OLD_HANDLER)),
    KafkaProperty("sasl.oauthbearer.token.endpoint.url"),  # or file:///..., of a file with a token
    KafkaProperty("sasl.oauthbearer.scope"),
    KafkaProperty("sasl.oauthbearer.client.credentials.client.id"),
    KafkaProperty("sasl.oauthbearer.client.credentials.client.secret"),
    # Python reads PEM only; a JKS or PKCS12 store has to be converted, and naming the type says so early.
    KafkaProperty("ssl.truststore.type", choices=("PEM",)),
    KafkaProperty("ssl.truststore.location"),
    KafkaProperty("ssl.truststore.certificates"),
    KafkaProperty("ssl.keystore.type", choices=("PEM",)),
    KafkaProperty("ssl.keystore.location"),
    KafkaProperty("ssl.keystore.certificate.chain"),
    KafkaProperty("ssl.keystore.key"),
    KafkaProperty("ssl.key.password"),
    KafkaProperty("ssl.cipher.suites"),
    KafkaProperty("ssl.endpoint.identification.algorithm", choices=("https", "")),
)
ACCEPTED: Mapping[str, KafkaProperty] = {entry.name: entry for entry in _TABLE}
_NO_GROUP = "ZooKeeper keeps the group, not Kafka"
_RAW = "inbound hands records to the processor as they are; remove it"
#: What inbound decides itself, and the way out.
OWNED: Mapping[str, str] = {
    "group.id": "set channels.<name>.group instead",
    "group.instance.id": "set channels.<name>.consumer_id instead",
    "group.protocol": f"{_NO_GROUP}; remove it",
    "group.remote.assignor": f"{_NO_GROUP}; set channels.<name>.coordinator instead",
    "partition.assignment.strategy": f"{_NO_GROUP}; set channels.<name>.coordinator instead",
    "session.timeout.ms": f"{_NO_GROUP}; set zookeeper.session_timeout instead",
    "heartbeat.interval.ms": f"{_NO_GROUP}; set zookeeper.session_timeout instead",
    "max.poll.interval.ms": f"{_NO_GROUP}: a slow processor does not lose its partitions; remove it",
    "max.poll.records": "set channels.<name>.reader.max_batch_records instead",
    "enable.auto.commit": "the processor's answers decide what is committed; remove it",
    "auto.commit.interval.ms": "the processor's answers decide what is committed; remove it",
    "auto.offset.reset": "set channels.<name>.auto_offset_reset instead",
    "isolation.level": "set channels.<name>.isolation instead",
    "allow.auto.create.topics": "inbound never creates a topic that it reads; remove it",
    "config.providers": "${file:/path:key} and ${directory:/path:key} are always understood; remove it",
    "exclude.internal.topics": "set channels.<name>.topics or topics_pattern instead",
    "key.deserializer": _RAW,
    "value.deserializer": _RAW,
}
#: Properties of the Java client that have no counterpart here.
UNSUPPORTED: frozenset[str] = frozenset(
    {
        "default.api.timeout.ms",
        "enable.metrics.push",
        "interceptor.classes",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "retry.backoff.max.ms",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "security.providers",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
    }
)


def _folded(name: str) -> str:
    return re.sub(r"[._-]", "", name).lower()


_BY_SPELLING: Mapping[str, str] = {_folded(name): name for name in (*ACCEPTED, *OWNED, *UNSUPPORTED)}


def canonical(name: str) -> str:
    """Return the Java client's name for any spelling of it; an unknown name comes back as it is."""
    return _BY_SPELLING.get(_folded(name), name)


# -- checks --------------------------------------------------------------------------------------------------------


_UNITS = {"ms": "milliseconds", "bytes": "bytes"}


def check(name: str, value: Any) -> Scalar:
    """Return the value of the property `name` (a Java name) in its own type.

    Raises PydanticCustomError if the property cannot be set here, or not to this; a secret's value is not in it.
    """
    entry = ACCEPTED.get(name)
    if entry is None:
        raise wrong(_refusal(name))
    got = "something else" if is_secret_property(name) else shown(value)
    if entry.kind == "whole":
        return _number(entry, value, got)
    if entry.kind == "flag":
        return _flag(value, got)
    if entry.kind == "servers":
        return _servers(value)
    if not isinstance(value, str):
        raise wrong("need text; put the value in quotes") if is_secret_property(name) else need_text(value)
    if entry.kind == "jaas" and not PLACEHOLDER.fullmatch(value.strip()):
        try:
            parse_jaas(value)
        except ValueError as error:
            raise wrong(str(error)) from None
    if entry.choices and value not in entry.choices:
        choices = ", ".join(choice or "''" for choice in entry.choices)
        raise wrong(f"need {'one of ' if len(entry.choices) > 1 else ''}{choices}, got {got}")
    return str(value)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the properties, under their Java names; other spellings are for machines."""
    properties = {name: _property_schema(entry) for name, entry in ACCEPTED.items()}
    properties["bootstrap.servers"] |= {"default": DEFAULT_SERVERS}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _property_schema(entry: KafkaProperty) -> dict[str, Any]:
    if entry.kind == "whole":
        bounds = {"minimum": entry.at_least, "maximum": 2**31 - 1, "pattern": "^-?[0-9]{1,18}$"}
        unit = _UNITS.get(entry.name.rsplit(".", 1)[1])
        return {
            "type": ["integer", "string"],
            **bounds,
            **({"description": f"In {unit}, without a unit."} if unit else {}),
        }
    if entry.kind == "flag":
        return {"type": ["boolean", "string"], "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"}
    if entry.kind == "servers":
        servers = {"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1, "minLength": 1}
        return {"description": "host:port, with commas between several.", **servers}
    return {"type": "string", "enum": list(entry.choices)} if entry.choices else {"type": "string"}


def _refusal(name: str) -> str:
    if name in OWNED:
        return f"is not set here: {OWNED[name]}"
    if name in UNSUPPORTED:
        return "has no effect with the clients that inbound reads with; remove it"
    near = get_close_matches(canonical(name), ACCEPTED, n=1) or get_close_matches(name, [*OWNED, *UNSUPPORTED], n=1)
    return "unknown Kafka property; " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(ACCEPTED)}")


def _number(entry: KafkaProperty, value: Any, got: str) -> int:
    name = _UNITS.get(entry.name.rsplit(".", 1)[1])
    unit = f" ({name})" if name else ""
    # Properties files, and the ConfigMaps made of them, hold numbers as text.
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        value = int(value)
    if type(value) is not int:
        raise wrong(f"need a whole number without a unit{unit}, got {got}")
    if not entry.at_least <= value < 2**31:
        raise wrong(f"need {entry.at_least} to {2**31 - 1}{unit}, got {got}")
    return value


def _flag(value: Any, got: str) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise wrong(f"need true or false, got {got}")
    return value


def _servers(value: Any) -> str:
    """Return `host:port,host:port`, from such a text or from a list."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(server, str) for server in given):
        raise need_text(value)
    servers = [server.strip() for server in given]
    for server in servers:
        if not has_port(server):
            raise wrong(f"need host:port, with commas between several, got {shown(server)}")
    if not servers:
        raise wrong("need at least one host:port, got an empty list")
    return ",".join(servers)


# -- sasl.jaas.config, as users of the Java client write it --------------------------------------------------------


_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[=;])|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class Jaas:
    """A line of `sasl.jaas.config`: a login module, `required`, its options."""

    module: str  # the login module's class
    options: Mapping[str, str] = field(repr=False)  # they hold passwords

    @property
    def kind(self) -> str:
        """The class's own name, without its package: PlainLoginModule."""
        return self.module.rpartition(".")[2]


def parse_jaas(line: str) -> Jaas:
    """Read the line.

    Raises:
        ValueError: it is none. The text says what is wrong, and holds nothing of the line.
    """
    tokens = list(_tokens(line))
    if len(tokens) < 2 or "=" in (tokens[0][1], tokens[1][1]):
        raise ValueError('need a login module, `required`, and options: ...PlainLoginModule required username="...";')
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("need the word `required` after the login module")
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest and rest[0] != ("mark", ";"):
        if len(rest) < 3 or rest[0][0] != "text" or rest[1] != ("mark", "=") or rest[2][0] != "text":
            raise ValueError('need options of the form name="value", with `;` after the last one')
        if rest[0][1] in options:
            raise ValueError("an option is given twice; keep one")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if rest[1:]:
        raise ValueError("need one login module; a second one begins after `;`")
    return Jaas(module, options)


def jaas_line(module: str, options: Mapping[str, str]) -> str:
    """Return the line that `parse_jaas`, and Java, read as this."""
    pairs = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required{pairs};"


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    end = len(line.rstrip())
    while at < end:
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        at = match.end()
        if match["mark"]:
            yield "mark", match["mark"]
        elif match["word"] is not None:
            yield "text", match["word"]
        else:
            inside = match["double"] if match["double"] is not None else match["single"]
            yield "text", re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inside, flags=re.DOTALL)


def _quoted(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
