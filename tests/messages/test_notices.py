"""The notices for a pod: the warning, what lasts, and why an action is held."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from default_rules import default_rules
from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import Event, EventType, Notice, Remembered, plan
from enforcer.messages.notices import notices
from enforcer.policy.history import Change, Verdict
from enforcer.policy.holds import held, lifted
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import REASONS_OF, Kind, Mode, Place, Reason, Rung, State, Trigger
from exporter.model import Sharing
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, settled, snapshot

SAYS = 'Container "main" uses 70 GiB of GPU-0, 62 GiB more than its limit of 8 GiB (declared by policy annotation). '
FOR = "It was over its limit for 15 s in total"
ONLY = f"{FOR}. For now, only this message follows: "
WILL = f"{FOR}; after 2 min 15 s in total the pod will be evicted."
UNTIL_WARNED = 4
"""Rounds of 5 s: the first one over, and three more until 15 s."""


class Stage:
    """A play, and all notices and Events for its pods."""

    def __init__(self, rules: Rules = UNHURRIED) -> None:
        self.play = Play(rules, settled(rules))
        self.notices: list[Notice] = []
        self.events: list[Event] = []
        self._remembered = Remembered()

    def rounds(self, count: int, *actors: Actor, **world: object) -> Verdict:
        """Let so many rounds pass."""
        play = self.play
        for _ in range(count):
            before = play.verdicts[-1] if play.verdicts else None
            verdict = play.step(*actors, **world)  # type: ignore[arg-type]
            seen = snapshot(actors, play.monotonic, **world)  # type: ignore[arg-type]
            told = list(notices(verdict, before, seen, play.rules.trigger))
            self._remembered, events = plan(told, self._remembered, play.monotonic)
            self.notices += [notice for notice in told if not notice.lasting]
            self.events += events
        return verdict

    @property
    def notes(self) -> list[str]:
        """What users read in new notices, without the facts at the beginning."""
        assert all(one.note.startswith(SAYS) for one in self.notices)
        return [one.note.removeprefix(SAYS) for one in self.notices]

    @property
    def written(self) -> list[str]:
        """What users read in Events, without the facts at the beginning."""
        return [event.first.note.removeprefix(SAYS) for event in self.events]


def test_a_pod_is_warned_when_its_level_reaches_warn_after() -> None:
    """It reads how much, of what, whose declaration, for how long, and what follows after how long in total."""
    stage = Stage()
    stage.rounds(UNTIL_WARNED - 1, GREEDY, MEEK)
    assert stage.events == []
    stage.rounds(10, GREEDY, MEEK)
    (notice,) = stage.notices
    assert notice.note == SAYS + WILL
    assert (notice.reason, notice.type) == (EventReason.EXCEEDED, EventType.WARNING)
    regarding = notice.regarding
    assert (regarding.namespace, regarding.pod, regarding.container) == ("team", "greedy-1", "main")
    assert regarding.pod_uid == GREEDY.pod_uid
    assert WALL < notice.at < WALL + 60
    assert notice.holder is not None
    assert (notice.holder.pod_uid, notice.holder.container) == (GREEDY.pod_uid, "main")
    assert stage.written == [WILL], "what lasts is not written in each round"


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_pods_are_not_told_anything_in_modes_below_warn(mode: Mode) -> None:
    """Neither a warning nor a refusal is written, whether the node or the namespace has that mode."""
    stage = Stage(replace(UNHURRIED, mode=mode))
    stage.rounds(60, GREEDY, MEEK)
    assert stage.events == []
    stage = Stage()
    stage.rounds(60, GREEDY, MEEK, namespaces={"team": {"gpusteward.io/mode": str(mode)}})
    assert stage.events == []
    stage.rounds(60, GREEDY, MEEK, namespaces={})
    assert stage.events == [], "labels that cannot be read allow no message"


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.DRY_RUN])
def test_a_mode_that_does_not_act_announces_no_action(mode: Mode) -> None:
    """The warning says that only this message follows, and names the mode."""
    stage = Stage(replace(UNHURRIED, mode=mode))
    stage.rounds(10, GREEDY, MEEK)
    assert stage.notes == [f"{ONLY}the mode is {mode}."]


def test_with_the_trigger_contended_an_action_may_follow() -> None:
    """Whether it follows depends on the neighbours, and the warning says so."""
    stage = Stage(replace(UNHURRIED, trigger=Trigger.CONTENDED))
    stage.rounds(10, GREEDY, MEEK)
    may = "the pod may be evicted when a neighbour is short of memory."
    assert stage.notes == [f"{FOR}; after 2 min 15 s in total {may}"]


@pytest.mark.parametrize(
    ("world", "why"),
    [
        ({"sharing": Sharing.EXCLUSIVE}, Reason.EXCLUSIVE),
        ({"namespaces": {"team": {}}}, Reason.NO_CONSENT),
        ({"vendor": "amd"}, Reason.UNVERIFIED_BACKEND),
    ],
)
def test_no_warning_announces_what_would_not_follow(world: Mapping[str, object], why: Reason) -> None:
    """Where something prevents any action, the warning says what."""
    stage = Stage()
    stage.rounds(10, GREEDY, MEEK, **world)
    assert stage.notes == [f"{ONLY}{why.words}."]


def test_what_is_missing_prevents_the_announcement_too() -> None:
    """Without a journal the node does not act, and no warning says that it will."""
    stage = Stage(replace(UNHURRIED, ceilings=(Ceiling(Mode.WARN, Reason.JOURNAL),)))
    stage.rounds(10, GREEDY, MEEK)
    assert stage.notes == [f"{ONLY}{Reason.JOURNAL.words}."]


def test_a_missing_role_binding_prevents_the_announcement_until_it_is_there() -> None:
    """The warning names the missing right. Once it is granted, what follows is written at once."""
    stage, team = Stage(), (Place.NAMESPACE, "team", Reason.NO_RIGHTS)
    stage.rounds(1, GREEDY, MEEK)
    stage.play.history = held(stage.play.history, *team, stage.play.now, seconds=None)
    stage.rounds(10, GREEDY, MEEK)
    assert stage.written == [f"{ONLY}{Reason.NO_RIGHTS.words}."]
    stage.play.history = lifted(stage.play.history, *team)
    stage.rounds(1, GREEDY, MEEK)
    assert "the pod will be evicted" in stage.written[-1]


@pytest.mark.parametrize("reason", Reason)
def test_only_what_follows_is_announced(reason: Reason) -> None:
    """Whatever prevents the action, "will" and "may" stand in no warning."""
    stage = Stage()
    verdict = stage.rounds(UNTIL_WARNED, GREEDY, MEEK)
    (warned,) = [one for one in verdict.standings if one.warned_at is not None]
    prevented = replace(warned, prevented=reason)
    (notice,) = notices(
        replace(verdict, standings=(prevented,)), None, snapshot((GREEDY,), BEGIN), stage.play.rules.trigger
    )
    assert "will be" not in notice.note
    assert "may be" not in notice.note
    assert "only this message follows" in notice.note


def test_when_consent_comes_the_pod_is_warned_anew() -> None:
    """The first warning announced no action. The next one does, and the grace begins with it."""
    stage = Stage()
    stage.rounds(10, GREEDY, MEEK, namespaces={"team": {}})
    stage.rounds(1, GREEDY, MEEK)
    assert stage.notes == [f"{ONLY}{Reason.NO_CONSENT.words}.", WILL]
    assert stage.written == stage.notes, "another announcement is written at once"
    began = stage.play.monotonic
    assert stage.play.until_action(GREEDY, MEEK).pod == "greedy-1"
    assert stage.play.monotonic - began >= 120


def test_a_warning_that_is_asked_for_again_is_written_again_at_once() -> None:
    """The grace waits until the server accepts it: five minutes of silence would stop the limit."""
    stage = Stage()
    stage.rounds(UNTIL_WARNED, GREEDY, MEEK)
    stage.rounds(20, replace(GREEDY, used=GIB), MEEK)
    stage.rounds(UNTIL_WARNED, GREEDY, MEEK)
    first, again = stage.events
    assert (first.name, first.count) == (again.name, again.count - 1)
    assert again.first.holder is not None


def test_an_excess_that_lasts_is_written_each_half_hour() -> None:
    """The server forgets an Event after an hour. The repeated one has the figures of its own time."""
    stage = Stage(replace(UNHURRIED, mode=Mode.WARN, interval=45.0))  # 160 rounds; of 5 s they are 1,440
    stage.rounds(UNTIL_WARNED + 2 * 3600 // 45, GREEDY, MEEK)
    exceeded = [event for event in stage.events if event.first.reason is EventReason.EXCEEDED]
    times = [event.last_at for event in exceeded]
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [1800] * 4
    assert "over its limit for 2 min 15 s in total. For now" in exceeded[-1].first.note


def test_a_warning_outlives_a_restart_of_the_daemon() -> None:
    """The first verdict of a daemon warns all that are over: it does not know which Events stand."""
    stage = Stage()
    verdict = stage.rounds(UNTIL_WARNED + 5, GREEDY, MEEK)
    (notice,) = notices(verdict, None, snapshot((GREEDY, MEEK), BEGIN), Trigger.LIMIT)
    assert (notice.holder is not None, notice.lasting) == (True, False)


def test_what_prevents_and_what_holds_is_said_once_each() -> None:
    """The refusal is an Event of its own when the level is full, and only once."""
    stage = Stage()
    stage.rounds(200, GREEDY, MEEK, namespaces={"team": {}})
    label = "the namespace needs the label gpusteward.io/mode: enforce"
    full = "It was over its limit for 2 min 15 s in total"
    held = f"{full}. Now the pod would be evicted, but {Reason.NO_CONSENT.words} ({label})."
    assert stage.notes == [f"{ONLY}{Reason.NO_CONSENT.words}.", held]
    assert [one.type for one in stage.notices] == [EventType.WARNING, EventType.NORMAL]


def test_a_ladder_that_ends_with_the_notice_ends_there() -> None:
    """The notice is all that follows, and both messages say so."""
    stage = Stage(replace(UNHURRIED, ladder=(default_rules().ladder[0],)))
    stage.rounds(60, GREEDY, MEEK)
    full = "It was over its limit for 2 min 15 s in total"
    assert stage.notes == [f"{ONLY}{Reason.NO_RUNG.words}.", f"{full}. No action follows: {Reason.NO_RUNG.words}."]


@cache
def held_without_consent() -> tuple[Change, Verdict]:
    """Play once, for all reasons, what leads to an action that is held: 40 rounds, 15 ms."""
    stage = Stage()
    stage.rounds(40, GREEDY, MEEK, namespaces={"team": {}})
    (change,) = [one for verdict in stage.play.verdicts for one in verdict.changes if one.after.state is State.HELD]
    return change, stage.play.verdicts[-1]


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_that_passes_by_itself_is_not_written_on_the_pod(reason: Reason) -> None:
    """
    Reasons of kind waiting stand in the log; on the pod they would be noise. All others are written.

    But those of an API server that does not answer: the Event would be written when they are not true any more.
    """
    change, verdict = held_without_consent()
    held = replace(verdict, standings=(), changes=(Change(State.GRACE, replace(change.after, reason=reason)),))
    written = list(notices(held, None, snapshot((GREEDY,), BEGIN), Trigger.LIMIT))
    away = (Reason.NAMES_STALE, Reason.NAMESPACE_UNKNOWN)
    assert len(written) == (reason not in (*REASONS_OF[Kind.WAITING], *away))


@pytest.mark.parametrize("reason", [None, Reason.NAMES_STALE, Reason.NAMESPACE_UNKNOWN])
def test_no_warning_is_repeated_with_what_the_api_server_did_not_say(reason: Reason | None) -> None:
    """While the API server does not answer, the warning is not repeated with that as its announcement."""
    stage = Stage()
    stage.rounds(40, GREEDY, MEEK)
    verdict = stage.play.verdicts[-1]
    away = [replace(one, state=State.HELD, reason=reason) if one.over and reason else one for one in verdict.standings]
    told = list(notices(replace(verdict, standings=tuple(away)), verdict, snapshot((GREEDY,), BEGIN), Trigger.LIMIT))
    assert len(told) == (reason is None)


def test_an_excess_that_waits_for_a_budget_is_still_announced() -> None:
    """A budget only delays: the action follows, and the repeated warning goes on saying so."""
    stage = Stage()
    verdict = stage.rounds(UNTIL_WARNED, GREEDY, MEEK)
    (warned,) = [one for one in verdict.standings if one.warned_at is not None]
    waiting = replace(warned, state=State.HELD, reason=Reason.BUDGET_NODE, level=warned.capacity)
    (notice,) = notices(replace(verdict, standings=(waiting,)), None, snapshot((GREEDY,), BEGIN), Trigger.LIMIT)
    assert notice.note.endswith("in total; now the pod will be evicted.")


def test_messages_about_a_shared_claim_name_no_other_pod() -> None:
    """The pod that uses most gets the Events, and no other pod is named."""
    claim = {"scope": "claim", "claim": "team/shared", "limit": 8 * GIB}
    first, second = Actor("rank-0", 40 * GIB, **claim), Actor("rank-1", 30 * GIB, **claim)  # type: ignore[arg-type]
    stage = Stage()
    stage.rounds(40, first, second)
    assert stage.notices, "the pods that declare it learn of it"
    for notice in stage.notices:
        other = {"rank-0": "rank-1", "rank-1": "rank-0"}[notice.regarding.pod]
        assert other not in notice.note


def test_each_pod_of_a_shared_claim_has_an_event_of_its_own() -> None:
    """A pod that becomes the largest is warned on itself, and not in the series of the pod that was warned before."""
    claim = {"scope": "claim", "claim": "team/shared", "limit": 8 * GIB}
    first, second = Actor("rank-0", 40 * GIB, **claim), Actor("rank-1", 30 * GIB, **claim)  # type: ignore[arg-type]
    stage = Stage()
    stage.rounds(UNTIL_WARNED, first, second)
    stage.rounds(2, replace(first, used=GIB), second)
    warned = [event.first.regarding for event in stage.events]
    assert [(each.pod, each.pod_uid) for each in warned] == [("rank-0", first.pod_uid), ("rank-1", second.pod_uid)]


def test_protected_pods_are_left_alone() -> None:
    """A pod that must not be acted on is not warned either."""
    stage = Stage(replace(UNHURRIED, protect=replace(UNHURRIED.protect, namespaces=("team",))))
    stage.rounds(60, GREEDY, MEEK)
    assert stage.events == []


def test_a_container_that_is_acted_on_for_its_pods_limit_is_named() -> None:
    """The limit is the pod's, and the warning says which container the step concerns."""
    rules = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT))
    stage = Stage(rules)
    verdict = stage.rounds(UNTIL_WARNED, replace(GREEDY, scope="pod"), MEEK)
    (warned,) = [one for one in verdict.standings if one.warned_at is not None]
    (notice,) = stage.notices
    assert warned.victim is not None
    assert 'the driver will refuse container "main" more memory' in notice.note
