"""What stands in the log: each change once, with figures as numbers and units in the keys."""

from dataclasses import replace

from enforcer.messages.log_lines import Line, lines
from enforcer.policy import breakers
from enforcer.policy.history import Verdict
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, settled

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)


class Log:
    """A play, and its log."""

    def __init__(self, rules: Rules = DRY) -> None:
        self.play = Play(rules, settled(rules))
        self.lines: list[Line] = []

    def rounds(self, count: int, *actors: Actor, **world: object) -> Verdict:
        """Let so many rounds pass."""
        for _ in range(count):
            before = self.play.verdicts[-1] if self.play.verdicts else None
            verdict = self.play.step(*actors, **world)  # type: ignore[arg-type]
            self.lines += lines(verdict, before)
        return verdict

    @property
    def events(self) -> list[str]:
        """The names of the log lines."""
        return [line.event.removeprefix("enforcer.") for line in self.lines]


def test_the_log_tells_a_story_from_its_beginning_to_its_end() -> None:
    """Each change is one line, a warning where a pod may lose something, and the figures are data."""
    log = Log()
    log.rounds(2, replace(GREEDY, used=GIB), MEEK)
    log.rounds(28, GREEDY, MEEK)
    log.rounds(60, replace(GREEDY, used=GIB), MEEK)
    assert log.events == ["mode", "over", "grace", "due", "dry_run", "held", "grace", "ok"]
    assert [line.event for line in log.lines if line.warning] == ["enforcer.grace", "enforcer.dry_run"]
    rehearsed = log.lines[4].data
    assert rehearsed == {
        "action": "evict",
        "namespace": "team",
        "pod": "greedy-1",
        "pod_uid": GREEDY.pod_uid,
        "container": "main",
        "device": "GPU-0",
        "used_bytes": 70 * GIB,
        "limit_bytes": 8 * GIB,
        "over_seconds": 135.0,
    }


def test_figures_are_numbers_and_keys_carry_their_units() -> None:
    """A grace says how many seconds over the limit count, and of how many."""
    log = Log()
    log.rounds(6, GREEDY, MEEK)
    (grace,) = [line.data for line in log.lines if line.event == "enforcer.grace"]
    assert (grace["over_seconds"], grace["capacity_seconds"]) == (15.0, 135.0)
    assert (grace["used_bytes"], grace["limit_bytes"]) == (70 * GIB, 8 * GIB)
    assert {type(value) for key, value in grace.items() if key.endswith(("_seconds", "_bytes"))} <= {float, int}


def test_a_grace_without_consequence_says_what_prevents_the_action() -> None:
    """An operator sees the reason before anything is due."""
    log = Log(UNHURRIED)
    log.rounds(6, GREEDY, MEEK, namespaces={"team": {}})
    (grace,) = [line.data for line in log.lines if line.event == "enforcer.grace"]
    assert grace["prevented"] is Reason.NO_CONSENT


def test_a_pod_in_good_order_makes_no_line() -> None:
    """A node that starts with fifty pods starts with one line."""
    log = Log()
    log.rounds(5, *(Actor(f"good-{number}", GIB) for number in range(50)))
    assert log.events == ["mode"]


def test_a_short_excess_makes_no_warning() -> None:
    """An allocator's spike is one quiet line."""
    log = Log()
    log.rounds(2, replace(GREEDY, used=GIB), MEEK)
    log.rounds(1, GREEDY, MEEK)
    log.rounds(3, replace(GREEDY, used=GIB), MEEK)
    assert log.events == ["mode", "over"]
    assert not any(line.warning for line in log.lines)


def test_a_refusal_is_logged_with_its_reason_kind_and_details() -> None:
    """An operator finds out what to change."""
    log = Log(UNHURRIED)
    log.rounds(40, GREEDY, MEEK, namespaces={"team": {}})
    (line,) = [line for line in log.lines if line.event == "enforcer.held"]
    assert (line.warning, line.data["reason"], line.data["kind"]) == (True, "no_consent", "chosen")
    assert line.data["detail"] == "the namespace needs the label gpusteward.io/mode: enforce"
    log.rounds(1, GREEDY, MEEK, namespaces={"team": CONSENTING})
    assert log.events[-1] == "grace", "with the consent the grace begins anew"


def test_breakers_and_modes_are_logged_as_they_change() -> None:
    """Opened with the reason, closed, and each change of the node's mode."""
    log = Log()
    log.rounds(1, MEEK)
    play = log.play
    opened = breakers.opened({}, Breaker.ATTRIBUTION, play.now.boot, "the memory lives on")
    play.history = replace(play.history, breakers=opened)
    log.rounds(2, MEEK)
    assert log.events == ["mode", "breaker_opened"]
    assert (log.lines[1].warning, log.lines[1].data) == (
        True,
        {"breaker": "attribution", "detail": "the memory lives on"},
    )
    play.history = replace(play.history, breakers={})
    log.rounds(1, MEEK)
    assert log.events[-1] == "breaker_closed"
    play.rules = replace(DRY, mode=Mode.WARN)
    log.rounds(1, MEEK)
    modes = [line.data["mode"] for line in log.lines if line.event == "enforcer.mode"]
    assert modes == ["dry-run", "warn"]


def test_a_container_that_was_over_and_is_protected_now_is_logged() -> None:
    """An over-user that cannot be judged any more leaves a trace."""
    log = Log()
    log.rounds(10, GREEDY, MEEK)
    log.play.rules = replace(DRY, protect=replace(DRY.protect, namespaces=("team",)))
    log.rounds(1, GREEDY, MEEK)
    (line,) = [line for line in log.lines if line.event == "enforcer.exempt" and line.data["pod"] == "greedy-1"]
    assert line.data["reason"] == "namespace"
