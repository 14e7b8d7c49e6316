"""
The tables of docs/policy.md that follow from code: `make golden`.

What comes in: the kinds of reasons, the default rules, the page. What goes out: the page, with new text between two
marker comments.

The rule: a test compares the page with this text. The reasons have a page of their own: `tools.reference.reasons`.
"""

from math import ceil
from pathlib import Path

from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Kind
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, load

PAGE = Path(__file__).parents[1] / "docs" / "policy.md"
JITTER = 1.2
"""A round follows the one before after at most this many intervals."""
MINUTE = 60
PERIODS = (1, 5, 30)
"""Minutes between two beginnings of an excess."""
SHARES = (0.5, 0.7, 0.9, 1.0)
"""The parts of each period that are over the limit."""
MEANS = {
    Kind.CHOSEN: "An operator, a namespace's administrator or the declaration itself decided it. Nothing alerts.",
    Kind.WAITING: "It ends by itself, within the bound that [its remedy](reference/reasons.md) states.",
    Kind.UNKNOWN: "The daemon does not see or does not have something that acting needs. "
    "[GPULimitUnenforceable](runbooks/GPULimitUnenforceable.md) alerts after 15 minutes.",
    Kind.EVADED: "The tenant prevents the action. "
    "[GPULimitEvaded](runbooks/GPULimitEvaded.md) alerts after 15 minutes.",
}


def kinds() -> str:
    """Write the table of the kinds."""
    lines = ["| kind | means |", "|---|---|"]
    lines += [f"| *{kind}* | {MEANS[kind]} |" for kind in Kind]
    return "\n".join(lines)


def latest(rules: Rules, share: float, period: float) -> float | None:
    """
    Return the seconds after which a holder is due at the latest; None where no bound is promised.

    `share` of each `period` (seconds) is over the limit; readings are at most `JITTER` intervals apart. Each crossing
    of the limit can hide one gap between readings, twice a period. Without crossings no gap is lost.
    """
    capacity, apart = rules.capacity(rules.grace), JITTER * rules.interval
    if share >= 1:
        return capacity + 2 * apart
    gained = (3 * share - 1) / 2 - 2 * apart / period
    return None if gained <= 0 else capacity / gained + period + 2 * apart


def bound(rules: Rules) -> str:
    """Write the table of the bound with these rules, in minutes, rounded up."""
    head = " | ".join(f"every {period} min" for period in PERIODS)
    lines = [f"| over its limit | {head} |", f"|---|{'---|' * len(PERIODS)}"]
    for share in SHARES:
        cells = [_minutes(latest(rules, share, period * MINUTE)) for period in PERIODS]
        lines.append(f"| {f'{share:.0%} of the time' if share < 1 else 'always'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _minutes(seconds: float | None) -> str:
    return "no bound" if seconds is None else f"{ceil(seconds / MINUTE)} min"


def written(page: str) -> str:
    """Put the tables between their markers. Raises ValueError where a marker is missing."""
    tables = {"kinds": kinds(), "bound": bound(rules_of(load(Arguments())))}
    for name, table in tables.items():
        before, begin, rest = page.partition(f"<!-- {name}: written by `make golden` -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not begin or not end:
            raise ValueError(f"docs/policy.md: the markers of {name} are missing")
        page = f"{before}{begin}\n{table}\n\n{end}{after}"
    return page


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
