"""The policy in plain data."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.messages import document
from enforcer.messages.tally import Tally
from enforcer.policy.preview import preview
from enforcer.policy.vocabulary import Mode, Reason, State
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, snapshot

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
OFFSET = WALL - BEGIN
DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)


def plain(described: object) -> Any:
    """Take what a client reads."""
    return json.loads(msgspec.json.encode(described))


def played(rounds: int, *actors: Actor, **world: object) -> tuple[Play, Tally]:
    play, tally = Play(DRY), Tally()
    for _ in range(rounds):
        verdict = play.step(*(actors or (GREEDY, MEEK)), **world)  # type: ignore[arg-type]
        tally = tally.after(verdict, WALL + play.monotonic - BEGIN)
    return play, tally


def greedy(play: Play) -> dict[str, Any]:
    (found,) = [one for one in play.verdicts[-1].standings if one.pod == GREEDY.pod]
    return dict(plain(document.standing(found, OFFSET)))


def test_a_standing_says_who_where_how_much_and_when() -> None:
    """Times are Unix seconds, whatever the monotonic clock says; names are the snapshot's."""
    play, _ = played(10)
    found = greedy(play)
    now = WALL + play.monotonic - BEGIN
    first = WALL + UNHURRIED.interval
    text = found.pop("text")
    assert found == {
        "namespace": "team",
        "pod": "greedy-1",
        "pod_uid": GREEDY.pod_uid,
        "container": "main",
        "container_id": GREEDY.id,
        "claim": "",
        "uuid": "GPU-0",
        "gpu_instance": None,
        "state": "grace",
        "reason": None,
        "why": None,
        "detail": "",
        "mode": "dry-run",
        "next": "evict",
        "next_container": None,
        "used_bytes": 70 * GIB,
        "context_allowance_bytes": 0,
        "limit_bytes": 8 * GIB,
        "declared": "policy annotation",
        "over": True,
        "over_since": pytest.approx(first, abs=0.01),
        "due_at": pytest.approx(first + 15 + 120, abs=0.01),
    }
    assert now < found["due_at"]
    assert text == "container main on GPU-0: grace [mode dry-run]"


def test_what_is_unknown_is_null() -> None:
    """A use that nobody read, a limit that cannot be used, a pod that nobody named."""
    play, _ = played(1, replace(GREEDY, used=None))
    found = greedy(play)
    assert (found["used_bytes"], found["over_since"], found["due_at"], found["state"]) == (None, None, None, "unjudged")
    play, _ = played(1, GREEDY, strangers=[GREEDY.pod])
    (one,) = play.verdicts[-1].standings
    found = plain(document.standing(one, OFFSET))
    assert (found["namespace"], found["pod"], found["state"], found["reason"]) == (None, None, "exempt", "pod_unknown")


def test_what_would_not_follow_is_not_announced() -> None:
    """`next` is what comes after the grace; nothing where the subject would be held."""
    play, _ = played(10, namespaces={"team": {}})
    assert (greedy(play)["state"], greedy(play)["next"]) == ("grace", None)


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_explained(reason: Reason) -> None:
    """A word for scripts, and words for people."""
    play, _ = played(40, namespaces={"team": {}})
    held = play.verdicts[-1].standings[0]
    found = plain(document.standing(replace(held, state=State.HELD, reason=reason), OFFSET))
    assert (found["reason"], found["why"]) == (reason.value, reason.words)
    assert reason.words in found["text"]


def test_actions_rehearsals_and_refusals_are_told_apart() -> None:
    """`kind` says which; each has the time, and who it was about."""
    _, tally = played(34)
    (rehearsed,) = plain([document.decision(one, OFFSET) for one in tally.recent])
    assert (rehearsed["kind"], rehearsed["action"], rehearsed["pod"]) == ("dry_run", "evict", "greedy-1")
    assert (rehearsed["workload_kind"], rehearsed["workload"]) == ("Deployment", "greedy")
    assert rehearsed["at"] - rehearsed["over_since"] == pytest.approx(135)
    real = Play(UNHURRIED)
    action = real.until_action(GREEDY, MEEK)
    real_tally = Tally().after(real.verdicts[-1], WALL)
    (done,) = plain([document.decision(one, OFFSET) for one in real_tally.recent])
    assert (done["kind"], done["action"], action.dry) == ("action", "evict", False)
    _, tally = played(40, namespaces={"team": {}})
    (refused,) = plain([document.decision(one, OFFSET) for one in tally.recent])
    assert (refused["kind"], refused["reason"], refused["state"]) == ("refusal", "no_consent", "held")


def test_the_summary_is_complete() -> None:
    """Mode, breakers, budgets, standings, what was decided of late."""
    play, tally = played(40)
    play.step(GREEDY, MEEK, proven=False)
    found = plain(document.summary(play.verdicts[-1], tally.recent, OFFSET))
    assert found["mode"] == "dry-run"
    assert [(one["breaker"], one["by_itself"]) for one in found["breakers"]] == [("attribution", True)]
    assert found["budget_remaining"].keys() == {"node", "namespace", "workload"}
    assert {one["pod"] for one in found["standings"]} == {"greedy-1", "meek-1"}
    assert [one["kind"] for one in found["recent"]] == ["dry_run"]


def test_the_page_describes_each_field() -> None:
    """docs/api.md names what is there, in code letters."""
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    play, tally = played(40, namespaces={"team": {}})
    _, dry = played(34)
    summary = document.summary(play.verdicts[-1], (*tally.recent, *dry.recent), OFFSET)
    looked = document.preview(preview(snapshot((GREEDY, MEEK), BEGIN), DRY), OFFSET)
    fields = {*summary, *looked, *(key for one in summary["recent"] for key in one), *summary["standings"][0]}
    fields |= {key for one in summary["breakers"] for key in one}
    assert not fields - named
