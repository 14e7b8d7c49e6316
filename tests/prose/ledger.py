"""The open findings that are known: how many of each rule in each file. The counts may only fall.

In: findings, the ledger (findings.yaml), the exceptions (exceptions.yaml). Out: what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import plain_yaml
from prose.linting import Finding

Counts = Mapping[tuple[str, str], int]
HEAD = """\
# How many findings of each rule (tests/prose/terms.yaml, tests/prose/node/rules.cjs) are still open in each file.
# `make style` refuses new ones. `make prose` lowers the numbers after some were fixed. Nothing raises them.
"""


@dataclass(frozen=True, slots=True)
class Excuse:
    """A line in which a finding is none, and why."""

    path: str
    rule: str
    quote: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Say whether the finding is in that line."""
        return (finding.path, finding.rule) == (self.path, self.rule) and self.quote in finding.said


def excuses(text: str) -> list[Excuse]:
    """Read exceptions.yaml. Raises TypeError where one lacks its reason."""
    return [Excuse(**one) for one in plain_yaml.load(text) or ()]


def excused(findings: Iterable[Finding], given: list[Excuse]) -> tuple[list[Finding], list[Excuse]]:
    """Return the findings that stay, and the excuses that nothing needs."""
    found = list(findings)
    return (
        [one for one in found if not any(excuse.covers(one) for excuse in given)],
        [excuse for excuse in given if not any(excuse.covers(one) for one in found)],
    )


def counted(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """Count by file and rule."""
    return Counter((one.path, one.rule) for one in findings)


def read(text: str) -> Counter[tuple[str, str]]:
    """Read findings.yaml."""
    pages: dict[str, dict[str, Any]] = plain_yaml.load(text) or {}
    return Counter({(path, rule): int(count) for path, rules in pages.items() for rule, count in rules.items()})


def written(counts: Counts) -> str:
    """Write findings.yaml."""
    pages: dict[str, list[str]] = {}
    for (path, rule), count in sorted(counts.items()):
        if count:
            pages.setdefault(path, []).append(f"{rule}: {count}")
    return HEAD + "".join(f"{path}: {{{', '.join(rules)}}}\n" for path, rules in pages.items())


def risen(findings: Iterable[Finding], known: Counts) -> Iterator[str]:
    """Yield all findings of a rule in a file that has more of them than the ledger: counts cannot name the new ones."""
    found = list(findings)
    for (path, rule), count in sorted(counted(found).items()):
        if count > known.get((path, rule), 0):
            yield f"{path}: {rule}: {count} findings, {known.get((path, rule), 0)} of them known:"
            yield from (f"  {one}" for one in found if (one.path, one.rule) == (path, rule))


def fallen(findings: Iterable[Finding], known: Counts) -> Iterator[str]:
    """Yield where there are fewer than the ledger has."""
    counts = counted(findings)
    for (path, rule), count in sorted(known.items()):
        if counts[path, rule] < count:
            yield f"{path}: {rule}: {counts[path, rule]} findings are left of {count}"


def lowered(findings: Iterable[Finding], known: Counts) -> Counts:
    """Return the ledger with what was fixed taken out, and nothing new taken in."""
    counts = counted(findings)
    return {key: min(count, counts[key]) for key, count in known.items()}
