"""Explains why brokers refuse our credentials, from errors of clients and OpenSSL."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from inbound.errors import BrokerRefusedError, ConfigError
from inbound.kafka.auth.access import login
from inbound.kafka.auth.tls import context

#: How long a look at a broker's certificate may take, in seconds.
LOOK_TIMEOUT = 2.0
#: Characters of an error that are searched; a broker can put 32 KiB into an answer, and sends it each time.
LONGEST = 2000

_NO_MECHANISM = re.compile(r"Unsupported ?Sasl ?Mechanism|does not support \S+ sasl mechanism", re.IGNORECASE)
_NO_SASL = re.compile(r"Illegal ?Sasl ?State|not valid in current SASL state", re.IGNORECASE)
_OFFERED = re.compile(r"(?:supported|Enabled) mechanisms: \[?([A-Z0-9', -]+)")
_NOT_LET_IN = re.compile(r"SaslAuthenticationFailed|SASL authentication error|_AUTHENTICATION|Authentication failed")
#: The connection broke, or the broker was too slow, while we were logging in: no broker has refused us. librdkafka gives it the
#: same code, and the same beginning, as a refusal.
_CUT_OFF = re.compile(r"failed: Local: (?:Broker transport failure|Timed out|Broker handle destroyed)")
_BROKERS_WORDS = re.compile(
    r"(?:SaslAuthenticationFailedError: |SASL authentication error: )+(.*?)(?: \(after |$)", re.DOTALL
)
_VERIFY = re.compile(r"certificate verify failed(?:: (.*?))?(?: \(_ssl|$| \(after )", re.IGNORECASE | re.DOTALL)
_OUR_CERTIFICATE = re.compile(
    r"alert[ _](?:bad[ _]certificate|certificate[ _](?:required|expired|unknown|revoked)|unknown[ _]ca|handshake[ _]failure|"
    r"access[ _]denied)",
    re.IGNORECASE,
)
_NO_TLS = re.compile(
    r"UNEXPECTED_EOF|WRONG_VERSION_NUMBER|wrong version number|PLAINTEXT broker listener|record layer failure|"
    r"RECORD_LAYER_FAILURE|Handshake failed: .*(?:Connection reset|EOF)",
    re.IGNORECASE,
)
_NOT_TRUSTED = "is of an authority that is not trusted here; check kafka.ssl.truststore.location, or ca.crt"
_NO_TOKEN = re.compile(r"no token for Kafka: .*", re.DOTALL)


def refusal(said: str, where: str, resolved: Mapping[str, Any], source: str = "") -> BrokerRefusedError | None:
    """Return the refusal in a client's error; None if it is none.

    `where` is the broker's host:port, `source` where our credentials are set, for the message.
    """
    text = _words(said[:LONGEST], where, resolved, source or "kafka.sasl.jaas.config")
    return BrokerRefusedError(text) if text is not None else None


def _words(said: str, where: str, resolved: Mapping[str, Any], source: str) -> str | None:
    if (found := _NO_TOKEN.search(said)) is not None:
        return found[0]
    if _CUT_OFF.search(said):
        return None
    protocol = resolved.get("security.protocol", "PLAINTEXT")
    mechanism = resolved.get("sasl.mechanism")
    if (verify := _VERIFY.search(said)) is not None:
        return _certificate(verify[1] or "", where)
    if _NO_MECHANISM.search(said):
        offered = _OFFERED.search(said)
        has = f"; it has {offered[1].strip()}".replace("'", "") if offered and offered[1].strip() else ""
        return (
            f"broker {where} does not have sasl.mechanism {mechanism}{has}; set kafka.sasl.mechanism to one that it has"
        )
    if _NO_SASL.search(said):
        return f"broker {where} asks for no SASL there; check kafka.security.protocol ({protocol}) and the port"
    if _NOT_LET_IN.search(said):
        user = _user(resolved)
        words = _BROKERS_WORDS.search(said)
        reason = f": {' '.join(words[1].split())[:200]}" if words and words[1].strip() else ""
        return f"authentication failed for user {user} at broker {where} by {mechanism}{reason}; check {source}"
    if str(protocol).endswith("SSL") and (alert := _OUR_CERTIFICATE.search(said)) is not None:
        if any(name.startswith("ssl.keystore.") for name in resolved):
            return (
                f"broker {where} did not take our certificate ({alert[0].lower().replace('_', ' ')}); "
                "check kafka.ssl.keystore.*, and its dates"
            )
        return (
            f"broker {where} wants a certificate of ours, and none is set; set kafka.ssl.keystore.location, or user.crt"
        )
    if str(protocol).endswith("SSL") and _NO_TLS.search(said):
        return f"broker {where} does not speak TLS there; check kafka.security.protocol ({protocol}) and the port"
    return None


def _user(resolved: Mapping[str, Any]) -> str:
    try:
        who = login(resolved)
    except ConfigError:
        return "?"
    return (who.user if who is not None else "") or "of the token"


def _certificate(reason: str, where: str) -> str:
    host = where.rpartition(":")[0]
    known = {
        "expired": "has expired; it has to be renewed there",
        "not yet valid": "is not valid yet; check both clocks",
        "mismatch": f"is not for the name {host}; use the name that it is for in kafka.bootstrap.servers and in the brokers' "
        "advertised.listeners, or have it issued for this one too",
        "issuer": _NOT_TRUSTED,
        "self": _NOT_TRUSTED,
    }
    otherwise = f"cannot be verified{f' ({reason})' if reason else ''}; check the authorities"
    return f"the certificate of broker {where} " + next(
        (text for word, text in known.items() if word in reason), otherwise
    )


def looked_at(where: str, resolved: Mapping[str, Any]) -> str:
    """Return OpenSSL's error for a broker's certificate; "" if there is none.

    librdkafka hides it. Sends nothing of ours but our certificate, if one is set. Each step waits `LOOK_TIMEOUT` at most.
    """
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    try:
        with (
            socket.create_connection((host, int(port)), LOOK_TIMEOUT) as connection,
            context(resolved).wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except (ssl.SSLError, OSError) as error:
        return str(error)
    except (ValueError, ConfigError):
        return ""
