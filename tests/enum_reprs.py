"""
No message that a person sees shows an enum as Python does: `<Breaker.INTERNAL: 'internal'>`.

In: nothing. Out: an error in each test during which the code of the project makes such a text, in an f-string, a list
or a log line. Law: what is only hashed or sorted, and what a test itself writes, is no message.
"""

import linecache
import sys
from enum import Enum, IntEnum, StrEnum
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = tuple(str(ROOT / package) + "/" for package in ("exporter", "enforcer"))
BETWEEN = ("<string>", "reprlib.py", "dataclasses.py", "argparse.py", "/structlog/", "/json/")
"""Code that makes texts of values for its caller; `<string>` are the methods that dataclasses make."""
HASHED = {("policy_config.py", "build_of"), ("events.py", "event_name"), ("curves.py", "_digest")}
"""Functions that write values to hash them."""
SORTED = "key=str"

_python = Enum.__repr__


class EnumReprError(AssertionError):
    """A message has the repr of an enum."""


def forbid() -> None:
    """Let each enum raise an error where the code of the project writes its repr."""
    for kind in (Enum, IntEnum, StrEnum):
        kind.__repr__ = _watched  # type: ignore[method-assign, assignment]


def _watched(self: Enum) -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and _between(frame.f_code.co_filename):
        frame = frame.f_back
    if _is_message(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno):
        raise EnumReprError(f"{frame.f_code.co_filename}:{frame.f_lineno}: a message has the repr {_python(self)}")
    return _python(self)


@cache
def _between(file: str) -> bool:
    return any(part in file for part in BETWEEN)


@cache
def _is_message(file: str, function: str, line: int) -> bool:
    hashed = (Path(file).name, function) in HASHED
    return file.startswith(OURS) and not hashed and SORTED not in linecache.getline(file, line)
