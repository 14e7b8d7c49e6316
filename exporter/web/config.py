"""
`--web.config.file`: TLS, client certificates, basic authentication, headers.

What comes in: a YAML file in the format of Prometheus' exporter-toolkit, and the certificate files that it names. What
goes out: `Security`, ready for use, or `ConfigError`. Format:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

The law: what this file asks for is done or refused, never ignored. What Python's TLS cannot do is refused by name.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from exporter.base.text_files import show
from exporter.config import ConfigError
from exporter.config.yaml_text import check, parse, read

UNSUPPORTED = {
    "tls_server_config.curve_preferences": "Python's TLS takes OpenSSL's own list of curves",
    "tls_server_config.cert": "name a cert_file",
    "tls_server_config.key": "name a key_file",
    "tls_server_config.client_ca": "name a client_ca_file",
    "rate_limit": "one rendering serves all scrapers of a round; limit the rate in front of the daemon",
}

CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_OPTIONAL,
}
"""
Go can also ask for certificates and not verify them; a certificate that nobody verified protects nothing.

One that is required is asked for by the request, not by the handshake: the kubelet has none, and may ask the probes.
"""

VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
"""RFC 8996 forbids TLS 1.0 and 1.1."""

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""The headers which exporter-toolkit lets be set, and the values of those that have only some."""

_BCRYPT = re.compile(r"\$2[abxy]?\$(?P<cost>0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_GO_SUITE = re.compile(r"TLS_(?P<exchange>ECDHE_(?:RSA|ECDSA))_WITH_(?P<cipher>[A-Z0-9_]+)")


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tls_server_config`, as written."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    client_auth_type: Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = "NoClientCert"
    client_allowed_sans: list[str] = msgspec.field(default_factory=list)
    min_version: Annotated[Literal["TLS12", "TLS13"], Meta(description="TLS12 or TLS13 (older ones: RFC 8996)")] = (
        "TLS12"
    )
    max_version: Annotated[Literal["TLS12", "TLS13"], Meta(description="TLS12 or TLS13 (older ones: RFC 8996)")] = (
        "TLS13"
    )
    cipher_suites: list[str] = msgspec.field(default_factory=list)
    prefer_server_cipher_suites: bool = True


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`http_server_config`, as written. HTTP/2 may be allowed; the client and we agree on HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class WebFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file, as written."""

    tls_server_config: Tls | None = None
    http_server_config: Http = msgspec.field(default_factory=Http)
    basic_auth_users: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Security:
    """
    How the server is protected; the plain default protects nothing.

    Attributes:
        tls: None for plain HTTP.
        certificates: whether all but the probes want a certificate of the client's.
        allowed_sans: names, one of which a client's certificate must carry; empty for any.
        users: name to bcrypt hash; empty for no authentication.

    """

    tls: ssl.SSLContext | None = None
    certificates: bool = False
    allowed_sans: frozenset[str] = frozenset()
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def load_security(path: Path | None) -> Security:
    """Read the file and the certificates. Raises ConfigError."""
    if path is None:
        return Security()
    written = parse_web_config(read(path), str(path))
    source = str(path)
    tls = written.tls_server_config
    return Security(
        tls=_context(tls, path.parent, source) if tls else None,
        certificates=tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert",
        allowed_sans=frozenset(tls.client_allowed_sans if tls else ()),
        users={name: hashed.encode() for name, hashed in written.basic_auth_users.items()},
        headers=written.http_server_config.headers,
    )


def contents(path: Path) -> tuple[bytes | str, ...]:
    """Read all that `load_security` depends on; two equal answers mean that nothing changed."""
    found: list[bytes | str] = [_content(path)]
    if isinstance(found[0], bytes):
        try:
            tls = parse_web_config(found[0], str(path)).tls_server_config
        except ConfigError as error:
            return (*found, str(error))
        files = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        found += [_content(path.parent / file) for file in files if file]
    return tuple(found)


def _content(path: Path) -> bytes | str:
    try:
        return read(path)
    except ConfigError as error:
        return str(error)


def parse_web_config(content: bytes, source: str) -> WebFile:
    """Check the text of the file; certificates are not looked at. Raises ConfigError."""
    data = parse(content, source)
    for path, why in UNSUPPORTED.items():
        if _written(data, path):
            raise ConfigError(f"{source}: {path}: not supported: {why}")
    written = check(data, WebFile, source)
    for header, value in written.http_server_config.headers.items():
        if header not in HEADERS:
            raise ConfigError(
                f"{source}: http_server_config.headers: expected {' or '.join(HEADERS)}, got {show(header)}"
            )
        if (HEADERS[header] and value not in HEADERS[header]) or not value.isprintable():
            expected = " or ".join(HEADERS[header]) or "one line of text"
            raise ConfigError(f"{source}: http_server_config.headers.{header}: expected {expected}, got {show(value)}")
    for name, hashed in written.basic_auth_users.items():
        if not name or ":" in name:
            raise ConfigError(f"{source}: basic_auth_users: expected a name without colon, got {show(name)}")
        if not _BCRYPT.fullmatch(hashed):  # a password in plain text is not repeated in a log
            raise ConfigError(
                f"{source}: basic_auth_users.{name}: expected a bcrypt hash, as `htpasswd -nBC 10` makes it"
            )
    if written.basic_auth_users:
        _need_bcrypt(source)
    return written


def _written(data: Mapping[str, Any], path: str) -> bool:
    section, _, key = path.partition(".")
    found = data.get(section)
    return section in data and (not key or (isinstance(found, dict) and key in found))


def _need_bcrypt(source: str) -> None:
    try:
        import bcrypt  # noqa: F401, PLC0415  (an extra, asked for only by those who use it)
    except ImportError as error:
        raise ConfigError(
            f"{source}: basic_auth_users: needs the Python package bcrypt: pip install 'gpusteward[auth]'"
        ) from error


def _context(tls: Tls, folder: Path, source: str) -> ssl.SSLContext:
    place = f"{source}: tls_server_config"
    if tls.cert_file is None or tls.key_file is None:
        raise ConfigError(
            f"{place}: expected both cert_file and key_file, got {'one' if tls.cert_file or tls.key_file else 'none'}"
        )
    if (tls.client_ca_file is None) != (tls.client_auth_type == "NoClientCert"):
        raise ConfigError(
            f"{place}: client_ca_file and a client_auth_type that verifies ({' or '.join(list(CLIENT_AUTH)[1:])}) "
            f"need one another, got only {'client_ca_file' if tls.client_ca_file else 'client_auth_type'}"
        )
    if tls.client_allowed_sans and tls.client_auth_type == "NoClientCert":
        raise ConfigError(f"{place}.client_allowed_sans: expected a client_auth_type that verifies, got NoClientCert")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[tls.min_version], VERSIONS[tls.max_version]
    if context.minimum_version > context.maximum_version:
        raise ConfigError(
            f"{place}.max_version: expected at least min_version ({tls.min_version}), got {tls.max_version}"
        )
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        _choose_ciphers(context, tls.cipher_suites, f"{place}.cipher_suites")
    certificate, key = folder / tls.cert_file, folder / tls.key_file
    for path in (certificate, key):
        read(path)  # OpenSSL does not say which of its files is missing
    try:
        context.load_cert_chain(certificate, key, password=b"")  # never ask a terminal for one
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"{place}: expected a certificate chain and its unencrypted key as PEM, got {certificate}, {key}: {error}"
        ) from error
    if tls.client_ca_file is not None:
        authority = folder / tls.client_ca_file
        read(authority)
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise ConfigError(f"{place}.client_ca_file: {authority} holds no certificates, as PEM: {error}") from error
    context.verify_mode = CLIENT_AUTH[tls.client_auth_type]
    return context


def _choose_ciphers(context: ssl.SSLContext, suites: list[str], place: str) -> None:
    """Translate Go's names of TLS 1.2 suites; those of TLS 1.3 are always on, as they are in Go."""
    chosen = []
    for suite in suites:
        if suite.startswith(("TLS_AES_", "TLS_CHACHA20_")):
            continue
        match = _GO_SUITE.fullmatch(suite)
        if match is None:
            raise ConfigError(f"{place}: expected suites with forward secrecy (TLS_ECDHE_…), got {show(suite)}")
        cipher = re.sub(r"AES_(\d+)", r"AES\1", match["cipher"]).replace("_CBC_SHA", "_SHA")
        cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        name = f"{match['exchange']}_{cipher}".replace("_", "-")
        try:
            context.set_ciphers(name)
        except ssl.SSLError as error:
            raise ConfigError(f"{place}: expected suites that OpenSSL has, got {show(suite)}") from error
        chosen.append(name)
    if chosen:
        context.set_ciphers(":".join(chosen))
