"""Certificate authorities, and what they sign, made for one test: PEM files of its own, good for an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Clocks of one machine do not differ; a test that runs long should not find its certificate ended.
_SOON, _LATER = timedelta(hours=1), timedelta(hours=6)


@dataclass(frozen=True)
class Pem:
    """PEM files of one certificate; the key is PKCS #8, which Java reads too."""

    certificate: Path
    key: Path
    both: Path  # key, then certificate: what Java calls a PEM key store
    locked: Path  # as `both`, with the key encrypted by `PASSWORD`


#: Of each `Pem.locked`.
PASSWORD = "key-s3cret-pw"


class CA:
    """An authority with a self-signed certificate, `pem`; what it signs lies beside it."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        now = datetime.now(UTC)
        builder = _builder(self._name, self._name, self._key, now - _SOON, now + _LATER)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = builder.add_extension(_usage(sign=True), critical=True).sign(self._key, hashes.SHA256())
        self.pem = folder / "ca.crt"
        self.pem.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, names: Sequence[str] = ("localhost", "127.0.0.1"), *, file: str = "server") -> Pem:
        """Sign for a server that is called by `names`: host names and addresses."""
        return self._sign(file, names[0], names, ended=False)

    def client(self, name: str, *, file: str | None = None) -> Pem:
        """Sign for a client whose common name is `name`."""
        return self._sign(file or f"client-{name}", name, (), ended=False)

    def expired(self, names: Sequence[str] = ("localhost", "127.0.0.1"), *, file: str = "expired") -> Pem:
        """Sign for a server, or a client called by the first name, what was good until an hour ago."""
        return self._sign(file, names[0], names, ended=True)

    def _sign(self, file: str, name: str, names: Sequence[str], *, ended: bool) -> Pem:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        begin, end = (now - _LATER, now - _SOON) if ended else (now - _SOON, now + _LATER)
        builder = _builder(_name(name), self._name, key, begin, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign=False), critical=True)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False
            )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        signed = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return _written(self.folder, file, signed, key)


def _written(folder: Path, file: str, certificate: bytes, key: ec.EllipticCurvePrivateKey) -> Pem:
    plain = _private(key, serialization.NoEncryption())
    locked = _private(key, serialization.BestAvailableEncryption(PASSWORD.encode()))
    made = Pem(*(folder / f"{file}{end}" for end in (".crt", ".key", ".pem", "-locked.pem")))
    for path, text in (
        (made.certificate, certificate),
        (made.key, plain),
        (made.both, plain + certificate),
        (made.locked, locked + certificate),
    ):
        path.write_bytes(text)
    return made


def _private(key: ec.EllipticCurvePrivateKey, how: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
