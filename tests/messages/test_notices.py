"""What is told of verdicts, to users and to operators."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import EventType, Notice
from enforcer.messages.notices import PASSING, Line, lines, notices
from enforcer.policy.history import Verdict
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason, State
from exporter.model import Sharing
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, snapshot

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)
SAYS = 'Container "main" uses 70 GiB of GPU-0, 62 GiB more than its limit of 8 GiB (declared by policy annotation). '


class Told:
    """A play, and all that is told of it."""

    def __init__(self, rules: Rules = DRY) -> None:
        self.play = Play(rules)
        self.notices: list[Notice] = []
        self.lines: list[Line] = []

    def rounds(self, count: int, *actors: Actor, **world: object) -> Verdict:
        """Let so many rounds pass."""
        for _ in range(count):
            before = self.play.verdicts[-1] if self.play.verdicts else None
            verdict = self.play.step(*actors, **world)  # type: ignore[arg-type]
            seen = snapshot(actors, self.play.monotonic, **world)  # type: ignore[arg-type]
            self.notices += notices(verdict, seen)
            self.lines += lines(verdict, before)
        return verdict

    @property
    def notes(self) -> list[str]:
        """What users read, without the facts at the beginning."""
        assert all(one.note.startswith(SAYS) for one in self.notices)
        return [one.note.removeprefix(SAYS) for one in self.notices]

    @property
    def events(self) -> list[str]:
        """The names of the log lines."""
        return [line.event.removeprefix("enforcer.") for line in self.lines]


def test_a_user_is_told_once_when_the_grace_begins() -> None:
    """How much, of what, whose declaration, what follows and when; on the pod, about the container."""
    told = Told(UNHURRIED)
    told.rounds(20, GREEDY, MEEK)
    (notice,) = told.notices
    assert notice.note == f"{SAYS}If it stays above the limit, the pod will be evicted in 2 min."
    assert (notice.reason, notice.type, notice.topic) == (EventReason.EXCEEDED, EventType.WARNING, "GPU-0")
    regarding = notice.regarding
    assert (regarding.namespace, regarding.pod, regarding.container) == ("team", "greedy-1", "main")
    assert regarding.pod_uid == GREEDY.pod_uid
    assert WALL < notice.at < WALL + 60


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_nobody_is_told_in_modes_below_warn(mode: Mode) -> None:
    """Neither that he is over, nor that something is held; whether the node or the namespace says so."""
    told = Told(replace(DRY, mode=mode))
    told.rounds(60, GREEDY, MEEK)
    assert told.notices == []
    told = Told()
    told.rounds(60, GREEDY, MEEK, namespaces={"team": {"gpusteward.io/mode": str(mode)}})
    assert told.notices == []
    told.rounds(60, GREEDY, MEEK, namespaces={})
    assert told.notices == [], "labels that cannot be read are no word to tell anybody"


def test_in_mode_warn_each_change_is_told_once() -> None:
    """The grace, and that nothing follows in this mode; not again while nothing changes."""
    told = Told(replace(DRY, mode=Mode.WARN))
    told.rounds(200, GREEDY, MEEK)
    assert told.notes == [
        "In mode enforce, the pod would be evicted in 2 min; in mode warn nothing is done.",
        "Now the pod would be evicted, but the mode does not allow it. It is looked at again in every round.",
    ]
    assert [one.type for one in told.notices] == [EventType.WARNING, EventType.NORMAL]


def test_a_grace_that_begins_anew_is_told_anew() -> None:
    """
    Nobody is evicted who was told something else, or nothing.

    The excess began while the namespace said observe, or the stop file was there. Its state stays `grace`.
    """
    told = Told(UNHURRIED)
    told.rounds(10, GREEDY, MEEK, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    assert (told.play.standing(GREEDY), told.notices) == (State.GRACE, [])
    told.rounds(1, GREEDY, MEEK)
    assert told.notes == ["If it stays above the limit, the pod will be evicted in 2 min."]
    began = told.play.monotonic
    action = told.play.until_action(GREEDY, MEEK)
    assert told.play.monotonic - began >= 120
    assert action.pod == "greedy-1"


def test_a_grace_that_begins_anew_in_a_round_without_reading_is_told_with_the_next() -> None:
    """Without a figure there is nothing to tell yet; the grace begins with the word."""
    told = Told(UNHURRIED)
    told.rounds(10, GREEDY, MEEK, namespaces={"team": {"gpusteward.io/mode": "observe"}})
    told.rounds(1, replace(GREEDY, used=None), MEEK)
    assert told.notices == []
    told.rounds(1, GREEDY, MEEK)
    assert told.notes == ["If it stays above the limit, the pod will be evicted in 2 min."]


@pytest.mark.parametrize(
    ("world", "why"),
    [
        ({"sharing": Sharing.EXCLUSIVE}, "it has the device for itself."),
        ({"sharing": Sharing.MPS}, "ending an MPS client may take its neighbours along."),
        ({"namespaces": {"team": {}}}, "its namespace does not consent."),
        ({"vendor": "amd"}, "numbers of this vendor's devices were not verified on hardware."),
    ],
)
def test_nobody_is_threatened_with_what_would_not_follow(world: Mapping[str, object], why: str) -> None:
    """Whoever would be held at the end of his grace learns that at its beginning, instead of a time."""
    told = Told(UNHURRIED)
    told.rounds(10, GREEDY, MEEK, **world)
    assert told.notes == [f"Nothing else is done about it: {why}"]


def test_a_ladder_that_ends_with_the_notice_ends_there() -> None:
    """Then the notice is all, and being held is no news that threatens with one more notice."""
    told = Told(replace(UNHURRIED, ladder=(default_rules().ladder[0],)))
    told.rounds(60, GREEDY, MEEK)
    assert told.notes == ["Nothing else is done about it: the ladder has no further rung."] * 2


@pytest.mark.parametrize("reason", sorted(PASSING))
def test_what_passes_by_itself_is_told_to_no_user(reason: Reason) -> None:
    """It stands in the log; on the pod it would be noise."""
    told = Told()
    told.rounds(40, GREEDY, MEEK, namespaces={"team": {}})
    (change,) = [one for verdict in told.play.verdicts for one in verdict.changes if one.after.state is State.HELD]
    verdict = told.play.verdicts[-1]
    for which, count in ((reason, 0), (Reason.STRIKES, 1)):
        held = replace(verdict, changes=(replace(change, after=replace(change.after, reason=which)),))
        assert len(list(notices(held, snapshot((GREEDY,), BEGIN)))) == count
        assert [line.event for line in lines(held, verdict)] == ["enforcer.held"]


def test_a_shared_claim_is_told_to_each_of_nobody_else() -> None:
    """What is told of a claim names no other pod, and says that nothing follows."""
    claim = {"scope": "claim", "claim": "team/shared", "limit": 8 * GIB}
    first, second = Actor("rank-0", 30 * GIB, **claim), Actor("rank-1", 30 * GIB, **claim)  # type: ignore[arg-type]
    told = Told(UNHURRIED)
    told.rounds(40, first, second)
    assert told.notices, "whoever declares it has to learn of it"
    for notice in told.notices:
        assert notice.regarding.pod in {"rank-0", "rank-1"}
        assert notice.regarding.container == ""
        assert "nobody declared whose excess it is" in notice.note
        other = {"rank-0": "rank-1", "rank-1": "rank-0"}[notice.regarding.pod]
        assert other not in notice.note


def test_the_log_tells_a_story_from_its_beginning_to_its_end() -> None:
    """Each change once, warnings where somebody may lose something, and the figures as data."""
    told = Told()
    told.rounds(2, replace(GREEDY, used=GIB), MEEK)
    told.rounds(32, GREEDY, MEEK)
    told.rounds(4, replace(GREEDY, used=GIB), MEEK)
    assert told.events == ["mode", "over", "grace", "due", "rehearsed", "ok"]
    assert [line.event for line in told.lines if line.warning] == ["enforcer.grace", "enforcer.rehearsed"]
    rehearsed = told.lines[4].data
    assert {key: rehearsed[key] for key in ("action", "namespace", "pod", "container", "device", "used", "limit")} == {
        "action": "evict",
        "namespace": "team",
        "pod": "greedy-1",
        "container": "main",
        "device": "GPU-0",
        "used": 70 * GIB,
        "limit": 8 * GIB,
    }
    assert rehearsed["over_for"] == "3 min"


def test_who_comes_in_good_order_makes_no_line() -> None:
    """A node that starts with two hundred pods starts with one line."""
    told = Told()
    told.rounds(5, *(Actor(f"good-{number}", GIB) for number in range(50)))
    assert told.events == ["mode"]


def test_a_short_excess_makes_no_warning() -> None:
    """An allocator's spike is one quiet line."""
    told = Told()
    told.rounds(2, replace(GREEDY, used=GIB), MEEK)
    told.rounds(1, GREEDY, MEEK)
    told.rounds(3, replace(GREEDY, used=GIB), MEEK)
    assert told.events == ["mode", "over"]
    assert not any(line.warning for line in told.lines)


def test_a_refusal_is_logged_with_its_reason_and_details() -> None:
    """An operator finds out what to change."""
    told = Told()
    told.rounds(40, GREEDY, MEEK, namespaces={"team": {}})
    (line,) = [line for line in told.lines if line.event == "enforcer.held"]
    assert (line.warning, line.data["reason"]) == (True, "no_consent")
    assert line.data["detail"] == "the namespace needs the label gpusteward.io/mode: enforce"
    told.rounds(20, GREEDY, MEEK, namespaces={"team": CONSENTING})
    assert told.events[-1] == "grace", "with the consent it has its grace, and is told"


def test_breakers_and_modes_are_logged_as_they_change() -> None:
    """Opened with the reason, closed, and each change of the node's mode."""
    told = Told()
    told.rounds(2, GREEDY, MEEK, proven=False)
    assert told.events == ["breaker_opened", "mode"]
    assert (told.lines[0].warning, told.lines[0].data["breaker"]) == (True, "attribution")
    told.rounds(125, GREEDY, MEEK)
    assert told.events.count("breaker_closed") == 1
    told.play.rules = replace(DRY, mode=Mode.WARN)
    told.rounds(1, GREEDY, MEEK)
    assert [line.data for line in told.lines if line.event == "enforcer.mode"] == [
        {"mode": "dry-run"},
        {"mode": "warn"},
    ]


def test_who_cannot_be_judged_any_more_is_logged_when_he_was_over() -> None:
    """An over-user who hides, or is protected now, leaves a trace; and who never was over leaves none."""
    told = Told()
    told.rounds(10, GREEDY, MEEK)
    told.rounds(4, replace(GREEDY, used=None), replace(MEEK, used=None))
    (line,) = [line for line in told.lines if line.event == "enforcer.unjudged"]
    assert (line.data["pod"], line.data["reason"]) == ("greedy-1", "reading_unknown")
