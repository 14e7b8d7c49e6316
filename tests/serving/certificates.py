"""A certificate authority in a folder: ca.pem, server.pem and .key, client.pem and .key, and a locked.key."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM
NAMES: dict[str, list[x509.GeneralName]] = {
    "server": [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")],
    "client": [x509.DNSName("prometheus.example")],
}


class Authority:
    """Signs what the tests need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign("ca", self._key.public_key(), [])
        (folder / "ca.pem").write_bytes(self._certificate.public_bytes(PEM))
        for name in NAMES:
            self.issue(name)
        self._write_key("locked", serialization.load_pem_private_key((folder / "server.key").read_bytes(), None), b"x")

    def issue(self, name: str) -> int:
        """Make a new pair and return its serial number. The key is written first, as a careless rotation does."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key.public_key(), NAMES[name])
        self._write_key(name, key)
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(PEM))
        return certificate.serial_number

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """Make the context of a client that trusts us, and perhaps has a certificate."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # our certificates have no Authority Key Identifier
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def _sign(self, name: str, key: ec.EllipticCurvePublicKey, names: list[x509.GeneralName]) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write_key(self, name: str, key: object, password: bytes | None = None) -> None:
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        text = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, lock)
        (self.folder / f"{name}.key").write_bytes(text)
