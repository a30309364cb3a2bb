"""Resolves the configuration's Kafka properties with the contents of mounted files.

Every connection resolves them again. The result has Kafka's own properties alone, with no folder and no placeholder left,
for both clients and for Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from inbound.config.kafka_properties import ACCEPTED, DEFAULT_SERVERS, PLACEHOLDER
from inbound.config.kafka_secret import KEYS, LOCATIONS, from_secret
from inbound.config.kafka_values import Jaas, parse_jaas
from inbound.config.secrets import remember
from inbound.errors import ConfigError

#: Larger files are no credentials. Bytes.
LARGEST = 2**20
_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Login:
    """Our identity for SASL."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token_url: str = ""  # OAUTHBEARER: the token endpoint; file:///... is a file with a token
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


def resolve(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return Kafka's properties with the current contents of the files they name.

    Files of certificates stay named.

    Raises:
        ConfigError: a file cannot be read, or properties contradict each other. The message has no secret.
    """
    written = {name: value for name, value in properties.items() if name != "secret"}
    mounted: dict[str, str] = {}
    if "secret" in properties:
        folder = Path(str(properties["secret"]))
        try:
            mounted = from_secret(_contents(folder))
        except ValueError as error:
            raise ConfigError(f"kafka.secret: {folder}: {error}") from None
        _give_way(mounted, written)
        mounted.setdefault("bootstrap.servers", DEFAULT_SERVERS)
    return {
        name: _filled(name, value) if isinstance(value, str) else value
        for name, value in {**mounted, **written}.items()
    }


def token_file(url: str) -> Path | None:
    """Return the file of a `file:` URL; None for other URLs."""
    return Path(unquote(urlsplit(url).path)) if url.lower().startswith("file:") else None


def contents(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `resolve`'s result and certificate files' contents, to detect changes.

    Raises:
        ConfigError: as `resolve` does.
    """
    resolved = resolve(properties)
    return resolved | {f"{name} ": read(name, Path(str(resolved[name]))) for name in LOCATIONS if name in resolved}


def login(resolved: Mapping[str, Any]) -> Login | None:
    """Return our identity; None without SASL.

    Raises:
        ConfigError: a property is missing.
    """
    if not str(resolved.get("security.protocol", "PLAINTEXT")).startswith("SASL"):
        return None
    mechanism = str(resolved.get("sasl.mechanism", ""))
    if not mechanism:
        raise ConfigError(
            f"kafka.sasl.mechanism: is missing; security.protocol {resolved['security.protocol']} needs one"
        )
    said = _jaas(resolved)
    if mechanism in _PASSWORDS:
        user, password = said.options.get("username", ""), said.options.get("password", "")
        if not user or not password:
            raise ConfigError(f'kafka.sasl.jaas.config: needs username="..." and password="..." for {mechanism}')
        remember(password)
        return Login(mechanism, user, password)
    if mechanism == "OAUTHBEARER":
        return _bearer(resolved, said)
    return Login(mechanism)


def warnings(resolved: Mapping[str, Any]) -> list[str]:
    """Return a warning for each property that looks safer than it is."""
    protocol = str(resolved.get("security.protocol", "PLAINTEXT"))
    tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    mechanism = resolved.get("sasl.mechanism")
    token_url = str(resolved.get("sasl.oauthbearer.token.endpoint.url", ""))
    found = (
        (
            tls and resolved.get("ssl.endpoint.identification.algorithm", "https") == "",
            "kafka.ssl.endpoint.identification.algorithm is empty: any certificate of the authority can pass for a broker's; "
            "remove it",
        ),
        (
            not tls and any(name.startswith("ssl.") for name in resolved),
            f"kafka.ssl.*: have no effect with security.protocol {protocol}; did you mean {'SASL_SSL' if sasl else 'SSL'}?",
        ),
        (
            not sasl and any(name.startswith("sasl.") for name in resolved),
            f"kafka.sasl.*: have no effect with security.protocol {protocol}; did you mean SASL_SSL?",
        ),
        (
            protocol == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER"),
            f"kafka.security.protocol is SASL_PLAINTEXT: sasl.mechanism {mechanism} sends the credentials unencrypted; use "
            "SASL_SSL",
        ),
        (
            sasl and token_url.startswith("http:"),
            "kafka.sasl.oauthbearer.token.endpoint.url is http: the client's secret is sent unencrypted; use https",
        ),
    )
    return [warning for unsafe, warning in found if unsafe]


def read(name: str, path: Path) -> str:
    """Return the text of the file that property `name` names.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ConfigError(f"kafka.{name}: {path} is larger than {LARGEST} bytes; name a file with credentials")
        return data.decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"kafka.{name}: {path} cannot be read: {why}") from None


def source(properties: Mapping[str, Any]) -> str:
    """Return where our credentials are set, for messages."""
    if "secret" in properties and "sasl.jaas.config" not in properties:
        return f"user and password in {properties['secret']}"
    return "kafka.sasl.jaas.config, and the files that it names"


def _give_way(mounted: dict[str, str], written: Mapping[str, Any]) -> None:
    """Remove mounted stores for which the configuration sets its own."""
    for one in ("ssl.truststore", "ssl.keystore"):
        if any(name.startswith(f"{one}.") and not name.endswith(".type") for name in written):
            for name in [name for name in mounted if name.startswith(f"{one}.")]:
                del mounted[name]


def _contents(folder: Path) -> dict[str, str]:
    """Return the files of a mounted folder, all of one version.

    Kubernetes swaps them by one link, `..data`.
    """
    for _ in range(5):
        try:
            now = os.path.realpath(folder / "..data" if (folder / "..data").exists() else folder)
            ours = {*ACCEPTED, *KEYS}  # Strimzi's secrets also hold .p12 stores
            names = sorted(path.name for path in Path(now).iterdir() if path.name in ours and path.is_file())
            found = {name: read("secret", Path(now, name)) for name in names}
        except OSError as error:
            raise ConfigError(
                f"kafka.secret: {folder} cannot be read: {error.strerror}; mount the secret there"
            ) from None
        except ConfigError:
            if os.path.realpath(folder / "..data") == now:
                raise
            continue  # it was swapped during the read
        return found
    raise ConfigError(f"kafka.secret: {folder} changes faster than it can be read")


def _filled(name: str, value: str) -> str:
    """Replace placeholders by file contents, or lines of properties files."""
    quote = name == "sasl.jaas.config" and PLACEHOLDER.fullmatch(value.strip()) is None

    def content(match: re.Match[str]) -> str:
        kind, place, key = match.groups()
        directory = kind == "directory"
        text = read(name, Path(place, key)).strip("\r\n") if directory else _line(name, Path(place), key)
        return text.replace("\\", "\\\\").replace('"', '\\"') if quote else text

    return PLACEHOLDER.sub(content, value)


def _line(name: str, path: Path, key: str) -> str:
    for line in read(name, path).splitlines():
        found, separator, text = line.partition("=")
        if separator and found.strip() == key:
            return text.strip()
    raise ConfigError(f"kafka.{name}: {path} has no line {key}=...")


def _jaas(resolved: Mapping[str, Any]) -> Jaas:
    line = resolved.get("sasl.jaas.config")
    if line is None:
        return Jaas("", {})
    try:
        return parse_jaas(str(line))
    except ValueError as error:
        raise ConfigError(f"kafka.sasl.jaas.config: {error}") from None


def _bearer(resolved: Mapping[str, Any], said: Jaas) -> Login:
    url = str(resolved.get("sasl.oauthbearer.token.endpoint.url", ""))
    if not url.lower().startswith(("https://", "http://", "file:")):
        raise ConfigError(
            "kafka.sasl.oauthbearer.token.endpoint.url: need where tokens are to be had for OAUTHBEARER: https://..., or "
            "file:///... for a file with a token"
        )
    credentials = "sasl.oauthbearer.client.credentials.client"
    user = said.options.get("clientId") or str(resolved.get(f"{credentials}.id", ""))
    secret = said.options.get("clientSecret") or str(resolved.get(f"{credentials}.secret", ""))
    if token_file(url) is None and not (user and secret):
        raise ConfigError(
            'kafka.sasl.jaas.config: needs clientId="..." and clientSecret="..." for OAUTHBEARER, or set '
            f"{credentials}.id and .secret"
        )
    remember(secret)
    return Login(
        "OAUTHBEARER",
        user,
        secret,
        url,
        said.options.get("scope") or str(resolved.get("sasl.oauthbearer.scope", "")),
        {name[10:]: value for name, value in said.options.items() if name.startswith("extension_")},
    )
