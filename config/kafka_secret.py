"""Reads Knative's credentials in a mounted folder as Kafka's properties.

The folder has one of two forms: today's (`protocol`, `sasl.mechanism`, `user`, `password`, `ca.crt`, `user.crt`, `user.key`,
`user.skip`), or that of Knative's older channels, where the protocol follows from the files (`username`, `saslType`,
`tls.enabled`, `brokers`). A file with the name of a Java property, such as `sasl.jaas.config`, is that property; other files
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbound.config.kafka_properties import ACCEPTED, PLACEHOLDER
from inbound.config.kafka_values import jaas_line
from inbound.config.values import file_flag

_MODULES = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{_MODULES}.plain.PlainLoginModule"
SCRAM_MODULE = f"{_MODULES}.scram.ScramLoginModule"
#: Properties that name files with certificates.
LOCATIONS = ("ssl.truststore.location", "ssl.keystore.location")
#: Files that are read, besides those with the name of a property.
KEYS = frozenset(
    {
        "brokers", "ca.crt", "password", "protocol", "sasl.mechanism", "saslType", "sasltype", "tls.enabled", "user",
        "user.crt", "user.key", "user.skip", "username",
    }
)  # fmt: skip
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def kafka_files(properties: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the files with brokers' credentials, except those read at each use."""
    found = [Path(str(properties[name])) for name in ("secret", *LOCATIONS) if properties.get(name)]
    for value in properties.values():
        for match in PLACEHOLDER.finditer(str(value)):
            found.append(Path(match[2], match[3]) if match[1] == "directory" else Path(match[2]))
    return tuple(dict.fromkeys(found))


def from_secret(given: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's properties for a folder's files, given by name.

    An empty file counts as missing.

    Raises:
        ValueError: a file is missing or wrong. The text names the files, and has nothing of their content.
    """
    files = {name: text if name.endswith((".crt", ".key")) else text.strip() for name, text in given.items()}
    files = {name: text for name, text in files.items() if text.strip()}
    user, password = _first(files, "user", "username"), files.get("password")
    logs_in = bool(user and password) or "sasl.jaas.config" in files
    protocol = files.get("protocol")
    if protocol is None and any(key in files for key in ("ca.crt", "user.crt", "tls.enabled", "password")):
        trusts = "ca.crt" in files or "user.crt" in files or file_flag(files, "tls.enabled")
        protocol = f"SASL_{'SSL' if trusts else 'PLAINTEXT'}" if logs_in else "SSL" if trusts else "PLAINTEXT"
    if protocol is not None and protocol not in PROTOCOLS:
        raise ValueError(f"protocol: need one of {', '.join(PROTOCOLS)}")
    found = {name: text for name, text in files.items() if name in ACCEPTED and name != "secret"}
    if protocol is not None:
        found["security.protocol"] = protocol
    if "brokers" in files:
        found["bootstrap.servers"] = ",".join(server.strip() for server in files["brokers"].split(","))
    if protocol is not None and protocol.startswith("SASL"):
        found |= _login(files, user, password)
    if protocol is not None and protocol.endswith("SSL"):
        found |= _certificates(files, required=protocol == "SSL" and "protocol" in files)
    return found


def _login(files: Mapping[str, str], user: str | None, password: str | None) -> dict[str, str]:
    mechanism = _first(files, "sasl.mechanism", "saslType", "sasltype") or "PLAIN"
    if mechanism == "OAUTHBEARER" or "sasl.jaas.config" in files:
        return {"sasl.mechanism": mechanism}
    for name, value in (("user", user), ("password", password)):
        if value is None:
            raise ValueError(f"{name}: is missing or empty, and sasl.mechanism {_known(mechanism)} needs it")
    module = SCRAM_MODULE if mechanism.startswith("SCRAM") else PLAIN_MODULE
    line = jaas_line(module, {"username": user or "", "password": password or ""})
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": line}


def _certificates(files: Mapping[str, str], *, required: bool) -> dict[str, str]:
    found = {}
    if "ca.crt" in files:
        found["ssl.truststore.certificates"] = files["ca.crt"]
    if file_flag(files, "user.skip"):
        return found
    for one, other in (("user.crt", "user.key"), ("user.key", "user.crt")):
        if one not in files and (other in files or required):
            skip = '; put "true" into user.skip if the brokers ask for no certificate' if required else ""
            raise ValueError(f"{one}: is missing or empty{skip}")
    if "user.crt" in files:
        found["ssl.keystore.certificate.chain"] = files["user.crt"]
        found["ssl.keystore.key"] = files["user.key"]
    return found


def _first(files: Mapping[str, str], *names: str) -> str | None:
    return next((files[name] for name in names if name in files), None)


def _known(mechanism: str) -> str:
    choices = ACCEPTED["sasl.mechanism"].choices
    if mechanism not in choices:
        raise ValueError(f"sasl.mechanism: need one of {', '.join(choices)}")
    return mechanism
