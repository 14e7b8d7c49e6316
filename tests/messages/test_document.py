"""The policy in plain data."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.messages import document
from enforcer.messages.tally import Tally
from enforcer.policy import breakers
from enforcer.policy.history import History, Standing
from enforcer.policy.preview import preview
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, State
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, settled, snapshot

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
OFFSET = WALL - BEGIN
DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)


def plain(described: object) -> Any:
    """Take what a client reads."""
    return json.loads(msgspec.json.encode(described))


def played(rounds: int, *actors: Actor, rules: Rules = DRY, **world: object) -> tuple[Play, Tally]:
    play, tally = Play(rules, settled(rules)), Tally()
    for _ in range(rounds):
        verdict = play.step(*(actors or (GREEDY, MEEK)), **world)  # type: ignore[arg-type]
        tally = tally.after(verdict, WALL + play.monotonic - BEGIN, OFFSET)
    return play, tally


def greedy(play: Play) -> dict[str, Any]:
    (found,) = [one for one in play.verdicts[-1].standings if one.pod == GREEDY.pod]
    return dict(plain(document.standing(found, OFFSET, WALL + play.monotonic - BEGIN)))


def test_a_standing_says_who_where_how_much_and_when() -> None:
    """Times are Unix seconds, whatever the monotonic clock says; names are the snapshot's."""
    play, _ = played(10, rules=UNHURRIED)
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
        "reason_kind": None,
        "why": None,
        "detail": "",
        "mode": "enforce",
        "next": "evict",
        "next_container": None,
        "prevented": None,
        "prevented_kind": None,
        "prevented_why": None,
        "used_bytes": 70 * GIB,
        "context_allowance_bytes": 0,
        "limit_bytes": 8 * GIB,
        "declared": "policy annotation",
        "over": True,
        "over_since": pytest.approx(first, abs=0.01),
        "over_seconds": 45.0,
        "capacity_seconds": 135.0,
        "grace_used_ratio": 0.333,
        "due_in_seconds": 90.0,
        "due_at": pytest.approx(now + 90, abs=0.01),
        "wait_seconds": None,
        "warned_at": pytest.approx(first + 15, abs=0.01),
    }
    assert text == (
        "container main on GPU-0: grace, over its limit for 45 s of 2 min 15 s, evict in 90 s at the earliest "
        "[mode enforce]"
    )


def test_an_action_follows_at_this_rate_only_while_the_excess_lasts() -> None:
    """Within the limit the level falls, and there is no time at which the action follows."""
    play, _ = played(10, rules=UNHURRIED)
    play.step(replace(GREEDY, used=GIB), MEEK)
    found = greedy(play)
    assert (found["over"], found["due_in_seconds"], found["due_at"]) == (False, None, None)
    assert found["over_seconds"] == 45.0


def test_what_is_unknown_is_null() -> None:
    """Usage that was not read, a limit that cannot be used, and a pod without a name are null."""
    play, _ = played(1, replace(GREEDY, used=None))
    found = greedy(play)
    assert (found["used_bytes"], found["over_since"], found["due_at"], found["state"]) == (None, None, None, "unjudged")
    play, _ = played(1, GREEDY, strangers=[GREEDY.pod])
    (one,) = play.verdicts[-1].standings
    found = plain(document.standing(one, OFFSET, WALL))
    assert (found["namespace"], found["pod"], found["state"], found["reason"]) == (None, None, "exempt", "pod_unknown")


def test_what_would_not_follow_is_not_announced() -> None:
    """`next` is the action that follows, and null where one is prevented; `prevented` says by what."""
    play, _ = played(10, rules=UNHURRIED, namespaces={"team": {}})
    found = greedy(play)
    assert (found["state"], found["next"]) == ("grace", None)
    assert (found["prevented"], found["prevented_kind"]) == ("no_consent", "chosen")
    assert found["prevented_why"] == Reason.NO_CONSENT.words
    assert "no action follows: its namespace does not consent" in found["text"]


def test_in_mode_dry_run_the_dry_run_follows() -> None:
    """`mode` says that it is one; in mode warn nothing follows."""
    play, _ = played(10)
    found = greedy(play)
    assert (found["mode"], found["prevented"], found["next"]) == ("dry-run", None, "evict")
    play, _ = played(10, rules=replace(UNHURRIED, mode=Mode.WARN))
    found = greedy(play)
    assert (found["prevented"], found["prevented_kind"], found["next"]) == ("warn", "chosen", None)


@cache
def without_consent() -> Standing:
    """Play once, for all reasons, what leads to an action that is held: 40 rounds, 12 ms."""
    play, _ = played(40, namespaces={"team": {}})
    return play.verdicts[-1].standings[0]


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_explained(reason: Reason) -> None:
    """A word for scripts, and words for people."""
    held = without_consent()
    found = plain(document.standing(replace(held, state=State.HELD, reason=reason), OFFSET, WALL))
    assert (found["reason"], found["reason_kind"], found["why"]) == (reason.value, reason.kind.value, reason.words)
    assert reason.words in found["text"]


def test_actions_rehearsals_and_refusals_are_told_apart() -> None:
    """`kind` says which; each has the time and the pod."""
    _, tally = played(28)
    (rehearsed,) = plain([document.decision(one) for one in tally.recent])
    assert (rehearsed["kind"], rehearsed["action"], rehearsed["pod"]) == ("dry_run", "evict", "greedy-1")
    assert (rehearsed["workload_kind"], rehearsed["workload"]) == ("Deployment", "greedy")
    assert rehearsed["at"] - rehearsed["over_since"] == pytest.approx(135)
    real = Play()
    action = real.until_action(GREEDY, MEEK)
    real_tally = Tally().after(real.verdicts[-1], WALL, OFFSET)
    (done,) = plain([document.decision(one) for one in real_tally.recent])
    assert (done["kind"], done["action"], action.dry) == ("action", "evict", False)
    _, tally = played(40, namespaces={"team": {}})
    (refused,) = plain([document.decision(one) for one in tally.recent])
    assert (refused["kind"], refused["reason"], refused["state"]) == ("refusal", "no_consent", "held")


def test_an_action_on_a_pod_of_a_shared_claim_names_its_uid() -> None:
    """The record outlives the pod, and another pod of its name may follow. The state of the claim names none."""
    sharers = [
        replace(GREEDY, pod=f"rank-{n}", used=(30 - n) * GIB, scope="claim", claim="team/shared") for n in (0, 1)
    ]
    play, tally = played(28, *sharers, MEEK)
    (found,) = (plain(document.decision(decided)) for decided in tally.recent)
    assert (found["kind"], found["pod"], found["pod_uid"]) == ("dry_run", "rank-0", sharers[0].pod_uid)
    (state,) = [one for one in play.verdicts[-1].standings if one.claim]
    assert plain(document.standing(state, OFFSET, WALL))["pod_uid"] is None


def test_the_summary_is_complete() -> None:
    """Mode, breakers, budgets, states, and what was decided of late."""
    play, tally = played(28)
    opened = breakers.opened({}, Breaker.ATTRIBUTION, play.now.boot, "the memory lives on")
    play.history = replace(play.history, breakers=opened)
    play.step(GREEDY, MEEK)
    found = plain(document.summary(play.verdicts[-1], tally.recent, OFFSET))
    assert found["mode"] == "dry-run"
    assert [(one["breaker"], one["by_itself"]) for one in found["breakers"]] == [("attribution", False)]
    assert found["budget_remaining"].keys() == {"node", "namespace"}
    assert {one["pod"] for one in found["standings"]} == {"greedy-1", "meek-1"}
    assert [one["kind"] for one in found["recent"]] == ["dry_run"]


def test_the_page_describes_each_field() -> None:
    """docs/api.md names what is there, in code letters."""
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    play, tally = played(40, namespaces={"team": {}})
    _, dry = played(28)
    summary = document.summary(play.verdicts[-1], (*tally.recent, *dry.recent), OFFSET)
    looked = document.preview(preview(snapshot((GREEDY, MEEK), BEGIN), DRY, History()), OFFSET)
    fields = {*summary, *looked, *(key for one in summary["recent"] for key in one), *summary["standings"][0]}
    fields |= {key for one in summary["breakers"] for key in one}
    assert not fields - named
