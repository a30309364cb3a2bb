"""The Kafka client properties, under the names of the Java client.

A property is passed on to the client (`ACCEPTED`), is set by inbound, so that another key or none sets it (`OWNED`), or has
no effect with any client of inbound and is refused (`UNSUPPORTED`). Any other name is a misspelling. The spellings
`bootstrap.servers`, `bootstrap_servers` and `bootstrapServers` mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Scalar = str | int | float | bool
DEFAULT_SERVERS = "127.0.0.1:9092"
#: Stands for the content of a file, as in Kafka's DirectoryConfigProvider and FileConfigProvider:
#: `${directory:/folder:file}` and `${file:/file.properties:key}`.
PLACEHOLDER = re.compile(r"\$\{(directory|file):([^:}]+):([^:}]+)\}")


@dataclass(frozen=True, slots=True)
class KafkaProperty:
    """One property of the Java client, and its values."""

    name: str
    kind: Literal["text", "whole", "flag", "servers", "jaas"] = "text"  # jaas: a login module with options
    at_least: int = 0
    choices: tuple[str, ...] = ()


#: Classes of the Java client: the login with a token, and the handler that gets the token, with its older name.
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
BEARER_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OLD_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
_TABLE = (
    # Not Kafka's: a mounted folder with credentials under Knative's names; properties beside it win.
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
    # Java needs this property; here its value is the only way to get a token.
    KafkaProperty("sasl.login.callback.handler.class", choices=(BEARER_HANDLER, _OLD_HANDLER)),
    KafkaProperty("sasl.oauthbearer.token.endpoint.url"),  # or file:///..., of a file with a token
    KafkaProperty("sasl.oauthbearer.scope"),
    KafkaProperty("sasl.oauthbearer.client.credentials.client.id"),
    KafkaProperty("sasl.oauthbearer.client.credentials.client.secret"),
    # Python reads PEM only: the type JKS or PKCS12 is refused, so that the store is converted.
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
_RAW = "inbound delivers records to the processor as they are; remove it"
#: Properties that inbound sets, with the advice for their error.
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
    """Return the Java name of any spelling, or an unknown `name` unchanged."""
    return _BY_SPELLING.get(_folded(name), name)
