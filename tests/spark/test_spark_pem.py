"""TLS for executors elsewhere: the content of PEM files in Kafka's options."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from inbound.errors import ConfigError
from inbound.spark.kafka_source import client_options, inline

CERTIFICATES = Path(__file__).parent.parent / "certificates"


def block(label: str, body: str = "AAAA") -> str:
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----"


CERTIFICATE, OTHER, KEY = block("CERTIFICATE"), block("CERTIFICATE", "BBBB"), block("PRIVATE KEY", "secret")
FILES = {
    "ca.pem": f"# our own\n{CERTIFICATE}\n{OTHER}\n",
    "client.pem": f"{KEY}\n{CERTIFICATE}\n",
    "openssl.pem": f"{block('RSA PRIVATE KEY', 'Proc-Type: 4,ENCRYPTED')}\n{CERTIFICATE}\n",
    "empty.pem": "nothing\n",
    "chain.pem": f"{CERTIFICATE}\n",
}


def test_stores_become_text() -> None:
    """Trusted certificates, and the client's key and certificates; no file is named any more."""
    given = {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SSL",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.location": "client.pem",
        "ssl.key.password": "word",
    }

    options = client_options(inline(given, FILES.__getitem__))

    assert {name: text for name, text in options.items() if "ssl" in name} == {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": f"{CERTIFICATE}\n{OTHER}",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "word",
    }


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("ssl.truststore.location", "empty.pem", "empty.pem holds no certificate in PEM"),
        ("ssl.keystore.location", "chain.pem", "must hold one private key and its certificates; it holds 0"),
        ("ssl.keystore.location", "openssl.pem", "convert it: openssl pkcs8 -topk8"),
    ],
)
def test_files_that_java_could_not_use_are_refused(name: str, file: str, said: str) -> None:
    """The message names property and file, and never what is in it."""
    with pytest.raises(ConfigError, match=said) as error:
        inline({name: file}, FILES.__getitem__)

    assert "AAAA" not in str(error.value)


@pytest.mark.parametrize("file", ["client.pem", "server.pem"])
def test_keys_in_an_older_form_of_openssl_become_such_as_java_reads(file: str, tmp_path: Path) -> None:
    """An elliptic curve's key as `openssl ecparam` writes it: Python reads the new form with the same certificate."""
    text = (CERTIFICATES / file).read_text()
    assert "BEGIN EC PRIVATE KEY" in text

    made = inline({"ssl.keystore.location": file}, {file: text}.__getitem__)

    both = tmp_path / "both.pem"
    both.write_text(f"{made['ssl.keystore.key']}\n{made['ssl.keystore.certificate.chain']}\n")
    assert "BEGIN PRIVATE KEY" in both.read_text()
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(both)  # raises if the key is not the certificate's


def test_what_names_no_files_stays_as_it_is() -> None:
    """SASL over plain connections, say."""
    given = {"bootstrap.servers": "b:9092", "sasl.jaas.config": "..."}

    assert inline(given, FILES.__getitem__) == given
