"""Runs textlint with our rules (node/rules.cjs) over prose.

In: texts. Out: findings, each with the line of the file. Needs npm's packages (cluster.npm), which it installs once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plain_yaml
from cluster.npm import NODE, packages
from prose.texts import Prose

HERE = Path(__file__).parent
PACKAGES = HERE / "node"
MOST_WORDS = 25


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What a rule found in a line."""

    path: str
    line: int
    rule: str
    message: str
    said: str

    def __str__(self) -> str:
        """Write it as compilers do: editors jump to such a place."""
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def rules() -> dict[str, dict[str, Any]]:
    """Return the rules with their options."""
    terms = plain_yaml.load((HERE / "terms.yaml").read_text(encoding="utf-8"))
    return {
        "sentence-length": {"most": MOST_WORDS},
        "subject": {},
        "retired": {"terms": terms["retired"], "ignoreCase": True},
        "spelling": {"terms": terms["spelling"]},
    }


def lint(texts: Iterable[Prose]) -> list[Finding]:
    """Return all findings. Raises BuildError where textlint is not here, and cannot be installed."""
    asked = list(texts)
    environment = os.environ | {"NODE_PATH": str(packages(PACKAGES))}
    given = json.dumps({"texts": [one.text for one in asked], "rules": rules()})
    done = subprocess.run(
        [NODE, PACKAGES / "lint.cjs"], input=given, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"textlint failed:\n{done.stderr[:4000]}")
    return sorted(
        Finding(prose.path, prose.lines[one["line"] - 1], one["rule"], one["message"], _line(prose, one["line"]))
        for prose, found in zip(asked, json.loads(done.stdout), strict=True)
        for one in found
    )


def _line(prose: Prose, number: int) -> str:
    return prose.text.split("\n")[number - 1]
