"""
`--web.config.file`: TLS, client certificates, basic authentication, headers.

What comes in: a YAML file in the format of Prometheus' exporter-toolkit, and the certificate files that it names. What
goes out: `Security`, ready for use, or `ConfigError`. Format:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md

The rule: each setting of this file is applied or refused, never ignored. Settings that Python's TLS cannot apply are
refused by name. No error shows a value of this file, because passwords may stand in wrong places.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from exporter.config import ConfigError
from exporter.config.yaml_text import check, kind, mapping, read, refuse, without_nulls
from exporter.web.tls import Tls, server_context

UNSUPPORTED = {
    "tls_server_config.curve_preferences": "remove the key: OpenSSL's own list of curves is used",
    "tls_server_config.cert": "write the certificate to a file, and set cert_file",
    "tls_server_config.key": "write the key to a file, and set key_file",
    "tls_server_config.client_ca": "write the certificates to a file, and set client_ca_file",
    "rate_limit": "remove the key: all scrapes of a round get the same page; limit the rate in a proxy",
}

HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""The headers that exporter-toolkit accepts, and their allowed values; empty for any value."""

_BCRYPT = re.compile(r"\$2[abxy]?\$(?P<cost>0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`http_server_config`, as written. `http2` is accepted, but this server speaks HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = {}


class WebFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file, as written."""

    tls_server_config: Tls | None = None
    http_server_config: Http = Http()
    basic_auth_users: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Security:
    """
    The protection of the server; the default is none.

    Attributes:
        tls: None for plain HTTP.
        certificates: whether all requests but probes need a client certificate.
        allowed_sans: a client's certificate must have one of these names; empty for any.
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
    source = str(path)
    written = parse_web_config(read(path, "web.config_file"), source)
    tls = written.tls_server_config
    return Security(
        tls=server_context(tls, path.parent, source) if tls else None,
        certificates=tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert",
        allowed_sans=frozenset(tls.client_allowed_sans if tls else ()),
        users={name: hashed.encode() for name, hashed in written.basic_auth_users.items()},
        headers=written.http_server_config.headers,
    )


def contents(path: Path) -> tuple[bytes | str, ...]:
    """Read all files that `load_security` depends on; two equal results mean that nothing changed."""
    content = _content(path)
    if isinstance(content, str):
        return (content,)
    try:
        tls = parse_web_config(content, str(path)).tls_server_config
    except ConfigError as error:
        return content, str(error)
    files = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
    return content, *(_content(path.parent / file) for file in files if file)


def _content(path: Path) -> bytes | str:
    try:
        return read(path)
    except ConfigError as error:
        return str(error)


def parse_web_config(content: bytes, source: str) -> WebFile:
    """Check the text of the file, but not its certificates. Raises ConfigError."""
    whole = mapping(content, source, secret=True)
    users = whole.get("basic_auth_users")
    if isinstance(users, dict) and None in users.values():  # not dropped as other nulls are: the port would stand open
        raise ConfigError(
            f"{source}: basic_auth_users: a name without a hash", fix="write `NAME: HASH`, with a space after the colon"
        )
    data: dict[str, Any] = without_nulls(whole)
    for path, why in UNSUPPORTED.items():
        if _written(data, path):
            raise ConfigError(f"{source}: {path}: not supported", fix=why)
    written = check(data, WebFile, source, secret=True)
    for header, value in written.http_server_config.headers.items():
        place = "http_server_config.headers"
        if header not in HEADERS:
            raise refuse(source, place, " or ".join(HEADERS), header, shown=kind)
        if (HEADERS[header] and value not in HEADERS[header]) or not value.isprintable():
            raise refuse(
                source, f"{place}.{header}", " or ".join(HEADERS[header]) or "one line of text", value, shown=kind
            )
    for name, hashed in written.basic_auth_users.items():
        if not name or ":" in name:
            raise refuse(source, "basic_auth_users", "a name without colon", name, shown=kind)
        if not _BCRYPT.fullmatch(hashed):  # a password in plain text is not repeated in a log
            raise ConfigError(
                f"{source}: basic_auth_users.{name}: expected a bcrypt hash", fix="make the hash with htpasswd -nBC 10"
            )
    if written.basic_auth_users:
        _need_bcrypt(source)
    return written


def _written(data: Mapping[str, Any], path: str) -> bool:
    section, _, key = path.partition(".")
    value = data.get(section)
    return section in data and (not key or (isinstance(value, dict) and key in value))


def _need_bcrypt(source: str) -> None:
    try:
        import bcrypt  # noqa: F401, PLC0415  (an extra that only this setting needs)
    except ImportError as error:
        raise ConfigError(
            f"{source}: basic_auth_users: the Python package bcrypt is not installed",
            fix="pip install 'gpusteward[auth]', or use the image, which has it",
        ) from error
