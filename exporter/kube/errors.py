"""
The errors of the API server, under one name.

What comes in: the server's Status objects, and bodies that may not be readable. What goes out: `KubeError`.

The rule: errors change their name once, here and in the client. No module above them knows HTTP's or JSON's errors.
None of them shows a secret.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from exporter.base.secrets import hidden

UNREACHABLE = 0
"""Status of a `KubeError` when no server answered."""
SILENT = "Silent"
"""Reason of a `KubeError` when a watch brought no line for too long."""

INVALID = "Invalid"
"""Reason of a `KubeError` when an answer cannot be read."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""The errors of JSON that is broken or has an unexpected form."""


@dataclass(eq=False, repr=False)
class KubeError(Exception):
    """
    The API server refused or could not be asked.

    Attributes:
        status: of HTTP; 0 when no server answered.
        reason: the reason of the server's Status object (`Forbidden`, `Expired`), or ours: `Unreachable`, `Timeout`,
            `Dropped`, `Silent`, `Untrusted`, `NotConfigured`, `Redirected`, `Invalid`.
        retry_after: seconds that the server wants us to wait.
        causes: the reasons of the server's details (`ResourceVersionTooLarge`).
        particulars: the same in sentences.
        kind: the resource of the refusal (`pods`, `poddisruptionbudget`); empty where a proxy answered.

    """

    status: int
    reason: str
    message: str
    retry_after: float | None = None
    causes: Collection[str] = ()
    particulars: Collection[str] = field(default=(), kw_only=True)
    kind: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        """Cut secrets out of what a server or a library wrote."""
        self.reason, self.message = hidden(self.reason), hidden(self.message)
        self.particulars = [hidden(one) for one in self.particulars]

    def __str__(self) -> str:
        """Write it for people."""
        return f"{self.status or ''} {self.reason}: {self.message}".lstrip()


class UnsentError(KubeError):
    """A `KubeError` of a request that certainly reached no server: it can safely be sent again."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    retry_after_seconds: int = 0
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, frozen=True):
    """The body of a refusal, meta/v1 Status. A proxy in between may send another body."""

    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: _Details | None = None


def status_error(raw: bytes | msgspec.Raw, otherwise: KubeError) -> KubeError:
    """Make the error of a Status object; `otherwise` supplies the missing parts."""
    try:
        status = msgspec.json.decode(raw, type=_Status)
    except UNREADABLE:
        return otherwise
    details = status.details or _Details()
    return KubeError(
        otherwise.status or status.code or UNREACHABLE,
        status.reason or otherwise.reason,
        status.message or otherwise.message,
        otherwise.retry_after or details.retry_after_seconds or None,
        [cause.reason for cause in details.causes or ()],
        particulars=[cause.message for cause in details.causes or () if cause.message],
        kind=details.kind,
    )


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode an answer. Raises KubeError if it does not have the form of the API reference."""
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise KubeError(UNREACHABLE, INVALID, f"an answer that cannot be read: {error}") from error
