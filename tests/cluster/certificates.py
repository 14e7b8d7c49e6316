"""Certificates made on the spot: one authority for each bed, and what it signs.

In: a folder, names. Out: PEM files, valid for a day.
Law: no key leaves the bed's folder, and the folder goes with the bed. As those of clusters from before Kubernetes 1.17,
the certificates have no Authority Key Identifier.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (or bare public key) and the private key of it, both PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own; `certificate` is what other programs are set to trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("bed-ca", ())
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(True, 0), critical=True
        )
        self.certificate = _write(
            folder / "ca.crt", builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        )

    def issue(self, file: str, common_name: str, organizations: Sequence[str] = (), hosts: Sequence[str] = ()) -> Pair:
        """Sign a certificate. To Kubernetes the common name is the user and the organizations are the groups.

        With `hosts` (names and addresses) it serves too; every one may be a client.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = _builder(_name(common_name, organizations), self._name, key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return Pair(_write(self.folder / f"{file}.crt", certificate), _write(self.folder / f"{file}.key", _pem(key)))

    def signing_pair(self, file: str) -> Pair:
        """A bare key pair, for ServiceAccount tokens."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return Pair(_write(self.folder / f"{file}.pub", public), _write(self.folder / f"{file}.key", _pem(key)))


def trusting(authority: Path) -> ssl.SSLContext:
    """Return the context of a client that trusts this authority, as Go's programs do: without the rules of RFC 5280."""
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(file: Path, content: bytes) -> Path:
    file.touch(mode=0o600)
    file.write_bytes(content)
    return file
