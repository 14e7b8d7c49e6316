"""`gpusteward preview` says of each pod over its limit how much of its grace is used, and what follows."""

import json
from typing import Any

import pytest

from exporter.top.forecast import COUNTS, HEAD, NONE_OVER, OPENS, parse, text

HOLDER = {
    "namespace": "team-a",
    "pod": "train-0",
    "container": "main",
    "uuid": "GPU-23b336ec-acfe-4b29-86b8-59f968ca8fde",
    "gpu_instance": None,
    "used_bytes": 30 * 2**30,
    "limit_bytes": 10 * 2**30,
    "over_seconds": 81.0,
    "capacity_seconds": 135.0,
    "due_in_seconds": 54.0,
    "next": "evict",
}


def shown(would: list[dict[str, Any]], held: list[dict[str, Any]], *, opens: bool = False, **head: object) -> list[str]:
    """Write the table of a document with these limit holders."""
    document = {
        "version": 1,
        "node": "gpu-1",
        "round": 7,
        "taken_at": 1.0,
        "age_seconds": 1.2,
        "interval_seconds": 5.0,
        "would_act_on": would,
        "held": held,
        "pods_over": len(would) + len(held),
        "pods_with_limits": 14,
        "blast_radius_breaker_would_open": opens,
        "unknown": "a later version's",
        **head,
    }
    return text(parse(json.dumps(document).encode())).splitlines()


def test_a_pod_in_its_grace_has_the_time_that_is_left() -> None:
    """Its line names pod, container, GPU, use, limit, the used part of the grace, and the action."""
    lines = shown([HOLDER], [])
    assert lines[0] == "Node gpu-1: what mode enforce would do (1s old)"
    assert lines[2].split("  ")[0] == HEAD[0]
    row = [cell for cell in lines[3].split("  ") if cell]
    used = [cell.strip() for cell in row]
    assert used == ["team-a/train-0", "main", "23b336ec", "30.0Gi", "10.0Gi", "60% (81 of 135s)", "evict in 54s"]
    assert lines[-1] == f"Over their limits: 1 of 14 workloads that may be acted on. {COUNTS}"


@pytest.mark.parametrize(
    ("facts", "follows"),
    [
        ({"due_in_seconds": 0.0}, "evict now"),
        (
            {"due_in_seconds": 0.0, "why": "another one comes first", "reason": "queued"},
            "evict, but waits: another one comes first (queued)",
        ),
        (
            {"due_in_seconds": 0.0, "why": "too early", "reason": "hold_off", "wait_seconds": 118.2},
            "evict, but waits: too early (hold_off, 118s left)",
        ),
        ({"due_in_seconds": None}, "evict, not while it is within its limit"),
    ],
)
def test_what_follows_is_said(facts: dict[str, Any], follows: str) -> None:
    """At once, after others, or not while the level does not rise."""
    assert shown([HOLDER | facts], [])[3].endswith(follows)


def test_what_prevents_an_action_is_said() -> None:
    """A held pod has the reason, in words and as the word to search for; foreign text moves no cursor."""
    why = {"why": "its namespace does not consent", "reason": "no_consent", "detail": "label\x1b[2J missing"}
    line = shown([], [HOLDER | why])[3]
    assert line.endswith("held, its namespace does not consent (no_consent): label\\x1b[2J missing")


def test_the_next_action_comes_first() -> None:
    """Those that are acted on by the time that is left, and then those that are held."""
    late, held = HOLDER | {"pod": "late", "due_in_seconds": 90.0}, HOLDER | {"pod": "held", "reason": "mps"}
    assert [line.split()[0] for line in shown([late, HOLDER], [held])[3:6]] == [
        *("team-a/train-0", "team-a/late"),
        "team-a/held",
    ]


def test_no_pod_over_its_limit_is_one_sentence() -> None:
    """Then there is no table; an open blast radius has its own sentence."""
    assert shown([], [])[2:] == [NONE_OVER]
    assert shown([HOLDER], [], opens=True)[-1] == OPENS


def test_another_version_is_refused() -> None:
    """The message names both versions."""
    with pytest.raises(ValueError, match="version 2 of the document, and this program reads 1"):
        shown([], [], version=2)
