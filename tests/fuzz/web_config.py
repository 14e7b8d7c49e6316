"""
Fuzz target: the web config, which protects the server, and Helm templates, people and secret managers write.

In: the file. The promise:
- It is read, or refused with a `ConfigError`, of which each line for a terminal is printable.
- What is read is what a plain YAML library reads: each value of the file is in force, and none is ignored.
- Each password hash is one of bcrypt, each header one that may be set, with one line of text.
- The TLS settings are those of the file, or they are refused.
- A refusal never repeats what stands below `basic_auth_users`.
"""

import ssl
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.base.problem import lines
from exporter.config import ConfigError
from exporter.web.config import HEADERS, WebFile, parse_web_config
from exporter.web.tls import CLIENT_AUTH, VERSIONS, Tls, server_context
from fuzz import scratch
from fuzz.drawing import Draw
from serving.certificates import Authority

SOURCE = "web.yaml"
MESSAGE = 1000
FILES = ("cert_file", "key_file", "client_ca_file")
SECRET_LENGTH = 8
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check(data: bytes) -> None:
    """Read the file."""
    content = Draw(data).rest()
    try:
        written = parse_web_config(content, SOURCE)
    except ConfigError as error:
        _check_refusal(error, content)
        return
    assert written == parse_web_config(content, SOURCE)
    _check_values(written, content)
    if written.tls_server_config is not None:
        _check_tls(written.tls_server_config)


def _check_refusal(error: ConfigError, content: bytes) -> None:
    assert error.what.startswith(SOURCE), error.what
    assert all(line.isprintable() for line in lines("gpusteward", error))
    assert len(str(error)) < MESSAGE, "a refusal that repeats too much"
    for secret in _secrets(_plain(content)):
        assert secret not in str(error), f"a secret in the refusal: {error}"


def _plain(content: bytes) -> Any:
    try:
        return yaml.load(content, Loader=_LOADER)  # noqa: S506  (a safe loader)
    except Exception:  # noqa: BLE001  (PyYAML raises IndexError, KeyError and more for some tags)
        return None


def _secrets(data: Any) -> list[str]:
    """List the values below `basic_auth_users`, but those that stand elsewhere in the file, too."""
    users = data.get("basic_auth_users") if isinstance(data, dict) else None
    others = (
        " ".join(_texts({key: value for key, value in data.items() if key != "basic_auth_users"}, keys=True))
        if users
        else ""
    )
    names = " ".join(map(str, users)) if isinstance(users, dict) else ""
    return [
        text
        for text in _texts(users, keys=False)
        if len(text) >= SECRET_LENGTH and text not in others and text not in names and not _usual(text)
    ]


def _usual(text: str) -> bool:
    """Tell words of our own messages from secrets."""
    return (
        text in "web.yaml: basic_auth_users: expected a bcrypt hash, a mapping, text; fix: make the hash with htpasswd"
    )


def _texts(data: Any, *, keys: bool) -> list[str]:
    if isinstance(data, dict):
        inner = [text for value in data.values() for text in _texts(value, keys=keys)]
        return [*inner, *(map(str, data) if keys else ())]
    if isinstance(data, list):
        return [text for value in data for text in _texts(value, keys=keys)]
    return [] if data is None else [str(data)]


def _check_values(written: WebFile, content: bytes) -> None:
    data = yaml.load(content, Loader=_LOADER)  # noqa: S506  (a safe loader)
    _check_in_force(data or {}, msgspec.to_builtins(written, enc_hook=str))
    for header, value in written.http_server_config.headers.items():
        assert header in HEADERS and value.isprintable() and (not HEADERS[header] or value in HEADERS[header])
    assert written.basic_auth_users.keys() == ((data or {}).get("basic_auth_users") or {}).keys(), "a user is ignored"
    for name, hashed in written.basic_auth_users.items():
        assert name and ":" not in name
        assert hashed.startswith("$2") and len(hashed) in (59, 60) and hashed.isascii(), hashed


def _check_in_force(data: dict[str, Any], written: dict[str, Any]) -> None:
    for key, value in data.items():
        if value is None:
            continue
        assert key in written, f"{key} is ignored"
        if isinstance(value, dict):
            if value and any(each is not None for each in value.values()):
                _check_in_force(value, written[key])
        elif isinstance(written[key], bool):
            assert written[key] is value or str(value).lower() in ("on", "yes", "true", "off", "no", "false"), key
        else:
            same = written[key] == value or (key in FILES and written[key] == str(Path(value)))  # "a/" is the file "a"
            assert same, (key, value, written[key])


@cache
def _folder() -> Path:
    folder = scratch.folder() / "certificates"
    folder.mkdir()
    Authority(folder)
    return folder


def _check_tls(tls: Tls) -> None:
    folder = _folder()
    try:
        context = server_context(tls, folder, SOURCE)
    except ConfigError as error:
        assert "\n" not in error.what
        return
    assert context.minimum_version == VERSIONS[tls.min_version]
    assert context.maximum_version == VERSIONS[tls.max_version]
    assert context.verify_mode == CLIENT_AUTH[tls.client_auth_type]
    assert bool(context.options & ssl.OP_CIPHER_SERVER_PREFERENCE) == tls.prefer_server_cipher_suites
    if tls.cipher_suites:
        names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
        asked = [suite for suite in tls.cipher_suites if suite.startswith("TLS_ECDHE_")]
        assert not asked or len(names) == len(set(asked)), (names, asked)
