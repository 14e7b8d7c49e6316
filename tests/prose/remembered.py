"""
What the rules found in files that did not change: an unchanged file is not looked at again.

In: files, the findings of the last run. Out: findings, and the same for the next run. Law: a file is known by its path
and its text, together with all rules and the code that reads them. What is remembered may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from prose.linting import HERE, Finding

KEPT = HERE.parents[1] / ".pytest_cache" / "prose.json"

Look = Callable[[Mapping[str, str]], list[Finding]]
"""Finds what is wrong in files, by path."""


def remembered(files: Mapping[str, str], look: Look, kept: Path = KEPT) -> list[Finding]:
    """Return the findings of all files: what is remembered, or what `look` finds where a file is new or changed."""
    rules, known = _rules(), _read(kept)
    keys = {path: _hashed(rules, path, text) for path, text in files.items()}
    new: dict[str, list[Finding]] = {path: [] for path, key in keys.items() if key not in known}
    for one in look({path: files[path] for path in new}) if new else ():
        new[one.path].append(one)
    found = {key: new[path] if path in new else [Finding(*one) for one in known[key]] for path, key in keys.items()}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({key: [astuple(one) for one in each] for key, each in found.items()}))
    return sorted(one for each in found.values() for one in each)


def _read(kept: Path) -> dict[str, list[list[Any]]]:
    try:
        known = json.loads(kept.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _rules() -> str:
    """Return all that says what is found: the rules, their terms and versions, and this folder's code."""
    own = [*HERE.glob("*.py"), *HERE.glob("*.yaml"), *(HERE / "node").glob("*.*")]
    return _hashed(*(one.read_text(encoding="utf-8") for one in sorted(own)))


def _hashed(*parts: str) -> str:
    return hashlib.sha256("".join(hashlib.sha256(part.encode()).hexdigest() for part in parts).encode()).hexdigest()
