"""Lines in which a rule finds what is right (exceptions.yaml).

In: findings, the file's text. Out: the findings that stay, and the exceptions that nothing needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import plain_yaml
from prose.linting import Finding


@dataclass(frozen=True, slots=True)
class Exempt:
    """A line in which a finding is none, and why."""

    path: str
    rule: str
    quote: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Say whether the finding is in that line."""
        return (finding.path, finding.rule) == (self.path, self.rule) and self.quote in finding.said


def read(text: str) -> list[Exempt]:
    """Read exceptions.yaml. Raises TypeError where one lacks its reason."""
    return [Exempt(**one) for one in plain_yaml.load(text) or ()]


def applied(findings: Iterable[Finding], given: list[Exempt]) -> tuple[list[Finding], list[Exempt]]:
    """Return the findings that stay, and the exceptions that nothing needs."""
    found = list(findings)
    return (
        [one for one in found if not any(exempt.covers(one) for exempt in given)],
        [exempt for exempt in given if not any(exempt.covers(one) for one in found)],
    )
