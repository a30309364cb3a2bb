"""TLS for Spark's executors: the PEM files that the configuration names, as text in the options. Pure but for `read`.

Executors on other machines have none of these files, and Kafka's Java client takes their content as well.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Callable, Mapping

from inbound.errors import ConfigError

_TRUST, _KEYS = "ssl.truststore.location", "ssl.keystore.location"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)

#: Of the PKCS #8 form, as DER: version 0; algorithms RSA (with its NULL) and elliptic curve.
_VERSION = bytes.fromhex("020100")
_RSA = bytes.fromhex("06092a864886f70d0101010500")
_CURVE = bytes.fromhex("06072a8648ce3d0201")
_SEQUENCE, _OCTETS, _PARAMETERS = 0x30, 0x04, 0xA0


def inline(properties: Mapping[str, object], read: Callable[[str], str]) -> dict[str, object]:
    """Return Kafka properties without files; `read` gives a file's text.

    Raises:
        ConfigError: a file holds no PEM, or a key in a form that Java does not read.
    """
    found = {name: value for name, value in properties.items() if name not in (_TRUST, _KEYS)}
    if _TRUST in properties:
        place = str(properties[_TRUST])
        certificates, _ = _parts(_TRUST, place, read(place))
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = "\n".join(certificates)
    if _KEYS in properties:
        place = str(properties[_KEYS])
        certificates, keys = _parts(_KEYS, place, read(place))
        if len(keys) != 1:
            raise ConfigError(
                f"kafka.{_KEYS}: {place} must hold one private key and its certificates; it holds {len(keys)}"
            )
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = "\n".join(certificates)
        found["ssl.keystore.key"] = keys[0]
    return found


def _parts(name: str, place: str, text: str) -> tuple[list[str], list[str]]:
    """Return the certificates and the private keys of a PEM file."""
    blocks = [(match[1], match[0]) for match in _BLOCK.finditer(text)]
    certificates = [block for label, block in blocks if label == "CERTIFICATE"]
    if not certificates:
        raise ConfigError(f"kafka.{name}: {place} holds no certificate in PEM; name a file that does")
    keys = []
    for label, block in blocks:
        if label in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
            keys.append(block)
        elif label.endswith("PRIVATE KEY"):
            try:
                keys.append(_pkcs8(label, block))
            except (ValueError, IndexError):
                raise ConfigError(
                    f"kafka.{name}: {place} holds a key in a form that Java does not read ({label}); "
                    "convert it: openssl pkcs8 -topk8"
                ) from None
    return certificates, keys


def _pkcs8(label: str, block: str) -> str:
    """Wrap a key in OpenSSL's older forms into the one that Java reads. ValueError, IndexError: it can't be."""
    lines = block.splitlines()[1:-1]
    key = base64.b64decode("".join(lines), validate=True)  # an encrypted one has lines that are no base64
    if label == "RSA PRIVATE KEY":
        algorithm = _RSA
    elif label == "EC PRIVATE KEY":
        parts = _elements(next(content for tag, content in _elements(key) if tag == _SEQUENCE))
        algorithm = _CURVE + next((content for tag, content in parts if tag == _PARAMETERS), b"")
        if algorithm == _CURVE:
            raise ValueError("it names no curve")
    else:
        raise ValueError(label)
    whole = _element(_SEQUENCE, _VERSION + _element(_SEQUENCE, algorithm) + _element(_OCTETS, key))
    text = "\n".join(textwrap.wrap(base64.b64encode(whole).decode(), 64))
    return f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----"


def _element(tag: int, content: bytes) -> bytes:
    """Write one element of DER."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Read the elements of DER that stand one after the other: tags and contents."""
    found, at = [], 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        found.append((tag, data[at : at + size]))
        at += size
    return found
