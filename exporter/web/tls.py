"""
TLS of the server, from the section `tls_server_config` of the web config.

What comes in: the section as written, and the certificate files that it names. What goes out: an SSLContext, or
`ConfigError`.

The rule: each setting of the section is applied or refused, never ignored.
"""

import re
import ssl
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from exporter.config import ConfigError
from exporter.config.yaml_text import kind, read, refuse

SECTION = "tls_server_config"

CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
"""Go can also ask for certificates and not verify them; an unverified certificate protects nothing."""

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
"""RFC 8996 forbids TLS 1.0 and 1.1."""

_GO_SUITE = re.compile(r"TLS_(?P<exchange>ECDHE_(?:RSA|ECDSA))_WITH_(?P<cipher>[A-Z0-9_]+)")

Version = Annotated[Literal["TLS12", "TLS13"], Meta(description="TLS12 or TLS13 (older ones: RFC 8996)")]


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tls_server_config`, as written."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = "NoClientCert"
    client_allowed_sans: list[str] = []
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True


def server_context(tls: Tls, folder: Path, source: str) -> ssl.SSLContext:
    """Make the context. Relative paths start at `folder`, errors name `source`. Raises ConfigError."""
    if tls.cert_file is None or tls.key_file is None:
        written = "one" if tls.cert_file or tls.key_file else "none"
        raise refuse(source, SECTION, "both cert_file and key_file", written)
    if (tls.client_ca_file is None) != (tls.client_auth_type == "NoClientCert"):
        raise ConfigError(
            f"{source}: {SECTION}: {'client_ca_file' if tls.client_ca_file else 'client_auth_type'} is set alone",
            cause=f"client_ca_file and a client_auth_type that verifies ({' or '.join(list(CLIENT_AUTH)[1:])}) "
            "need one another",
            fix="set both, or neither",
        )
    if tls.client_allowed_sans and tls.client_auth_type == "NoClientCert":
        raise refuse(source, f"{SECTION}.client_allowed_sans", "a client_auth_type that verifies", "NoClientCert")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[tls.min_version], VERSIONS[tls.max_version]
    if context.minimum_version > context.maximum_version:
        raise refuse(source, f"{SECTION}.max_version", f"at least min_version ({tls.min_version})", tls.max_version)
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        _choose_ciphers(context, tls.cipher_suites, source)
    _load_certificate(context, folder / tls.cert_file, folder / tls.key_file, source)
    if tls.client_ca_file is not None:
        _load_authority(context, folder / tls.client_ca_file, source)
    context.verify_mode = CLIENT_AUTH[tls.client_auth_type]
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path, source: str) -> None:
    read(certificate, f"{source}: {SECTION}.cert_file")  # OpenSSL does not say which of its files is missing
    try:
        read(key)
    except ConfigError as error:  # its path is not shown: perhaps it is the key itself
        cause = "this user cannot read the file, or key_file holds the key instead of a path"
        raise ConfigError(f"{source}: {SECTION}.key_file: cannot be read", cause=cause, fix=error.fix) from None
    try:
        context.load_cert_chain(certificate, key, password=b"")  # so that OpenSSL does not ask a terminal for one
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{source}: {SECTION}: {certificate} and {key} cannot be used",
            cause=str(error),
            fix="cert_file needs the certificate chain, and key_file its unencrypted key, both as PEM",
        ) from error


def _load_authority(context: ssl.SSLContext, authority: Path, source: str) -> None:
    read(authority, f"{source}: {SECTION}.client_ca_file")
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{source}: {SECTION}.client_ca_file: {authority} cannot be used",
            cause=str(error),
            fix="name a file with certificates as PEM",
        ) from error


def _choose_ciphers(context: ssl.SSLContext, suites: list[str], source: str) -> None:
    """Translate Go's names of TLS 1.2 suites; those of TLS 1.3 are always on, as they are in Go."""
    place, chosen = f"{SECTION}.cipher_suites", []
    for suite in suites:
        if suite.startswith(("TLS_AES_", "TLS_CHACHA20_")):
            continue
        match = _GO_SUITE.fullmatch(suite)
        if match is None:
            raise refuse(source, place, "suites with forward secrecy (TLS_ECDHE_…)", suite, shown=kind)
        cipher = re.sub(r"AES_(\d+)", r"AES\1", match["cipher"]).replace("_CBC_SHA", "_SHA")
        cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        name = f"{match['exchange']}_{cipher}".replace("_", "-")
        try:
            context.set_ciphers(name)
        except ssl.SSLError as error:
            raise refuse(source, place, "suites that OpenSSL has", suite, shown=kind) from error
        chosen.append(name)
    if chosen:
        context.set_ciphers(":".join(chosen))
