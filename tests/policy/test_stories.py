"""
The stories: files that say what pods hold, what happens, and what the policy has to do.

`stories/*.yaml` come in (their README says how they are read). What was expected of each round and what came goes out,
line by line, where they differ.

The rule: a story is data. A key that a story does not know fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import plain_yaml
from enforcer.policy.carry_over import restored
from enforcer.policy.history import History, Result
from enforcer.policy.outcomes import rehearsed
from enforcer.policy.rules import Budget, Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from exporter.base.quantities import parse_bytes, parse_duration
from exporter.model import Fault, Sharing
from faults.marking import showing
from policy.scenes import BEGIN, CONSENTING, UNHURRIED, WALL, Actor, Play

STORIES = sorted((Path(__file__).parent / "stories").glob("*.yaml"))


@cache
def read(file: Path) -> Mapping[str, Any]:
    """Read a story. Nothing changes it."""
    story: Mapping[str, Any] = plain_yaml.load(file.read_text())
    return story


FAULTS = {file: tuple(shown) for file in STORIES if (shown := read(file).get("faults"))}
"""The faults of docs/faults.md that a story shows."""
INVALID = Fault("config", "config_invalid", "policy.grace: expected a duration")
DURATIONS = {"grace", "warn_after", "spacing", "hold_off", "interval"}


def rules_of(rules: Rules, changes: Mapping[str, Any]) -> Rules:
    """Change the rules as a story says."""
    for key, value in changes.items():
        match key:
            case "mode":
                rules = replace(rules, mode=Mode(value))
            case "trigger":
                rules = replace(rules, trigger=Trigger(value))
            case "mps":
                rules = replace(rules, mps=Rung(value))
            case "build":
                rules = replace(rules, build=value)
            case "budgets":
                budgets = {scope: _budget(text) for scope, text in value.items()}
                rules = replace(rules, budgets=replace(rules.budgets, **budgets))
            case _ if key in DURATIONS:
                rules = _timed(rules, key, parse_duration(value))
            case _:
                raise ValueError(f"a story does not know the rule {key}")
    return rules


def _timed(rules: Rules, key: str, seconds: float) -> Rules:
    changed: dict[str, Any] = {key: seconds}
    return replace(rules, **changed)


def _budget(text: str) -> Budget:
    most, window = text.split("/")
    return Budget(int(most), parse_duration(window))


@dataclass
class Stage:
    """What is so now, between two rounds of a story."""

    play: Play
    actors: dict[str, Actor]
    here: set[str] = field(default_factory=set)
    world: dict[str, Any] = field(default_factory=dict)

    def happen(self, line: Mapping[str, Any]) -> None:
        """Do what a line says of its beginning."""
        for key, value in line.items():
            match key:
                case "holds":
                    for pod, text in value.items():
                        used = None if text == "unknown" else parse_bytes(str(text))
                        self._hold(pod, used)
                case "gone":
                    self.here -= set(value)
                case "limit":
                    for pod, text in value.items():
                        self.actors[pod] = replace(self.actors[pod], limit=parse_bytes(text))
                case "restarts":
                    for pod in value:
                        actor = self.actors[pod]
                        self.actors[pod] = replace(actor, generation=actor.generation + 1)
                case "rules":
                    self.play.rules = rules_of(self.play.rules, value)
                case "namespace":
                    self.world["namespaces"] = {"team": value}
                case "driver":
                    self.world["driver"] = value
                case "sharing":
                    self.world["sharing"] = Sharing(value)
                case "config":
                    self.world["faults"] = {"invalid": (INVALID,), "valid": ()}[value]
                case "stop":
                    self._stop(present=value)
                case "ends":
                    self._end(Result(value))
                case "sleeps":
                    self.play.asleep += parse_duration(value)
                case "daemon":
                    self._start(saved={"restarts": True, "starts": False}[value])
                case "expect" | "does" | "breakers":
                    pass
                case _:
                    raise ValueError(f"a story does not know {key}")

    def _hold(self, pod: str, used: int | None) -> None:
        actor = replace(self.actors[pod], used=used)
        if pod not in self.here and self.play.round:  # its controller made it just now
            actor = replace(actor, facts={**actor.facts, "created_at": WALL + self.play.monotonic - BEGIN})
        self.actors[pod] = actor
        self.here.add(pod)

    def _end(self, result: Result) -> None:
        play = self.play
        if result is Result.REHEARSED:
            assert play.history.dry_flight is not None, "there is no dry run that could end"
            play.history = rehearsed(play.history, play.history.dry_flight.action, play.now)
            return
        assert play.history.in_flight is not None, "nothing is in flight that could end"
        play.conclude(result)

    def _start(self, *, saved: bool) -> None:
        """Start the daemon anew, with its journal, and with the saved levels if they hold."""
        play, known = self.play, self.play.history
        history = History(spent=known.spent, breakers=known.breakers)
        if saved:
            history = restored(replace(history, settled=known.settled), known.levels, play.now)
        play.history = history

    def _stop(self, *, present: bool) -> None:
        ceilings = (Ceiling(Mode.OBSERVE, Reason.STOPPED),) if present else ()
        self.play.rules = replace(self.play.rules, ceilings=ceilings)

    def came(self, expected: Mapping[str, Any]) -> Iterator[str]:
        """Play a round, and describe each thing that is expected of it."""
        verdict = self.play.step(*(self.actors[pod] for pod in sorted(self.here)), **self.world)
        for pod in expected.get("expect", {}):
            state, reason = self.play.standing(self.actors[pod]), self.play.reason(self.actors[pod])
            yield f"{pod} {state or 'is not there'}{f' {reason}' if reason else ''}"
        action = verdict.action
        yield "nothing is done" if action is None else f"{'would ' if action.dry else ''}{action.rung} {action.pod}"
        if "breakers" in expected:
            yield f"breakers {sorted(map(str, verdict.breakers))}"


def wanted(line: Mapping[str, Any], *, first: bool) -> Iterator[str]:
    """Say what a line expects of its first round, or of another one."""
    for pod, standing in line.get("expect", {}).items():
        yield f"{pod} {standing}"
    yield line["does"] if first and "does" in line else "nothing is done"
    if "breakers" in line:
        yield f"breakers {sorted(line['breakers'])}"


def rounds(line: str | int) -> range:
    """Read `4-27`, or `28`."""
    begin, _, end = str(line).partition("-")
    return range(int(begin), int(end or begin) + 1)


def staged(story: Mapping[str, Any]) -> Stage:
    """Set the stage for a story."""
    assert story.keys() <= {"title", "tells", "faults", "rules", "pods", "rounds"}
    actors = {}
    for name, told in story["pods"].items():
        assert told.keys() <= {"limit", "workload"}
        actors[name] = Actor(name, 0, parse_bytes(told["limit"]), facts={"workload": told.get("workload", name)})
    return Stage(Play(rules_of(UNHURRIED, story.get("rules", {}))), actors, world={"namespaces": {"team": CONSENTING}})


def play(story: Mapping[str, Any], stage: Stage | None = None) -> tuple[list[str], list[str]]:
    """Play a story: what was expected, and what came, each in lines."""
    stage = stage or staged(story)
    expected, came = [], []
    for key, line in story["rounds"].items():
        for number in rounds(key):
            first = number == rounds(key)[0]
            assert number == stage.play.round + 1, f"round {number} does not follow {stage.play.round}"
            if first:
                stage.happen(line)
            expected += [f"round {number}: {text}" for text in wanted(line, first=first)]
            came += [f"round {number}: {text}" for text in stage.came(line)]
    return expected, came


def difference(expected: list[str], came: list[str]) -> str:
    """Show where a story went otherwise, the first rounds of it."""
    lines = list(unified_diff(expected, came, "expected", "came", lineterm="", n=1))
    return "\n".join(lines[:40])


@cache
def played(file: Path) -> tuple[list[str], list[str], Stage]:
    """Play the story of a file: what was expected, what came, and the stage at its end. Nothing changes them."""
    stage = staged(read(file))
    return (*play(read(file), stage), stage)


@pytest.mark.parametrize("file", showing(STORIES, FAULTS), ids=lambda file: file.stem)
def test_story(file: Path) -> None:
    """The policy does what the story says."""
    expected, came, _ = played(file)
    if expected != came:
        pytest.fail(f"{read(file)['title']}\n{difference(expected, came)}", pytrace=False)


COMES_FROM = {
    State.GRACE: {State.OVER, State.GRACE, State.DUE, State.HELD},
    State.DUE: {State.GRACE, State.DUE, State.HELD},
    State.HELD: {State.GRACE, State.DUE, State.HELD, State.ACTING},
    State.ACTING: {State.GRACE, State.DUE, State.HELD},
}
"""State -> the states from which it is reached: no action without a warning, no warning without an excess."""
RESTARTS = {(None, State.GRACE)}
"""A daemon that finds saved levels begins in the middle."""


@pytest.mark.parametrize("file", STORIES, ids=lambda file: file.stem)
def test_no_story_takes_a_short_cut(file: Path) -> None:
    """The table on top of `enforcer/policy/decide.py`: each state is reached from those before it only."""
    _, _, stage = played(file)
    changes = [change for verdict in stage.play.verdicts for change in verdict.changes]
    assert changes
    steps = {(change.before, change.after.state) for change in changes if change.after.state in COMES_FROM}
    assert [step for step in steps - RESTARTS if step[0] not in COMES_FROM[step[1]]] == []


def test_there_are_stories() -> None:
    """The directory was found, each story has a title and says what it is about."""
    assert len(STORIES) >= 12
    assert all(read(file)["title"] and read(file)["tells"] for file in STORIES)


def test_each_story_expects_something() -> None:
    """A story that expects nothing would always pass: half of its lines name a state."""
    for file in STORIES:
        lines = read(file)["rounds"].values()
        assert sum("expect" in line for line in lines) >= len(lines) / 2, file.stem


def test_a_wrong_story_fails_and_says_where() -> None:
    """One state and one action that do not come: the difference names both rounds, what was expected and what came."""
    story = dict(read(STORIES[0]))
    story["rounds"] = {
        **story["rounds"],
        "4-27": {"expect": {"greedy": "over", "meek": "ok"}},
        28: {"does": "kill greedy"},
    }
    expected, came = play(story)
    shown = difference(expected, came)
    assert "-round 4: greedy over\n+round 4: greedy grace" in shown
    assert ("round 28: kill greedy", "round 28: evict greedy") in zip(expected, came, strict=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"holsd": {"greedy": "1Gi"}}, "does not know holsd"),
        ({"rules": {"grase": "1s"}}, "does not know the rule grase"),
    ],
)
def test_a_story_with_an_unknown_key_fails(line: dict[str, Any], message: str) -> None:
    """A key that the stage does not know is an error."""
    story = {**read(STORIES[0]), "rounds": {1: line}}
    with pytest.raises(ValueError, match=message):
        play(story)
