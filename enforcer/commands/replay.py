"""
`gpusteward replay FILE --config FILE`: what the policy would have done, when, and why.

What comes in: a recording, a config, and perhaps other settings to compare with. What goes out: a line for each change
on standard output and a summary, or (`--set`) the timelines of two policies; and the exit code.

The rule: the daemon's own code decides, on the same snapshots. No action is taken. A config with `enforce` gets a dry
run, because in a recording the victim stays.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enforcer.commands import Commands, on_terminal, put, unwritten
from exporter.base.printable import printable

if TYPE_CHECKING:
    from enforcer.messages.timeline import Course
    from enforcer.policy.history import Verdict
    from enforcer.policy.rules import Rules
    from exporter.config import Arguments, Config
    from exporter.model import Snapshot

    Heard = Callable[[Snapshot, Verdict, Verdict | None], None]

PROGRAM = "gpusteward replay"
SECTIONS = ("policy.", "limits.")
WIDTH = 100
"""Columns of a timeline that is written to a file."""
_NAMES = ("namespace", "pod", "container")
_SHORT = {"used_bytes": "used", "limit_bytes": "limit", "over_seconds": "over", "capacity_seconds": "capacity"}


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "replay",
        help="run the policy on a recording, and print what it would have done, when and why",
        description="Run the policy of a config on a recording, and print what it would have done, when and why. "
        "Exit code: 0, 1 when the recording cannot be read, 2 for wrong usage or configuration.",
        epilog="example: gpusteward replay node.jsonl.gz --config gpusteward.yaml --mode enforce",
        allow_abbrev=False,
    )
    parser.add_argument("recording", type=Path, metavar="FILE", help="file that `gpusteward record` wrote")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="config file, of which the sections `limits` and `policy` are used"
    )
    parser.add_argument("--mode", metavar="MODE", help="use this mode instead of policy.mode of the config")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="compare the config (A) with the config and this setting (B), such as policy.grace=60s; any key of the "
        "sections `policy` and `limits`; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Replay, print, and return the exit code."""
    from enforcer.runtime.policy_config import meaningless  # noqa: PLC0415  (with the sampler comes more than --help needs)
    from exporter.config import Arguments, load  # noqa: PLC0415
    from exporter.recording import RecordingError  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415
    from exporter.running import exit_code  # noqa: PLC0415

    logs.configure("warning", "auto")
    overrides = {} if namespace.mode is None else {"policy.mode": namespace.mode}
    arguments = Arguments(namespace.config, overrides, dict.fromkeys(overrides, "--mode"))

    def work() -> None:
        config = load(arguments, meaningless)
        other = load(_with(arguments, namespace.settings), meaningless) if namespace.settings else None
        if other is None:
            asyncio.run(_replay(namespace.recording, config, as_json=namespace.json))
        else:
            asyncio.run(_compare(namespace.recording, config, other, namespace))

    try:
        return exit_code(PROGRAM, work, RecordingError)
    except OSError as error:
        return unwritten(PROGRAM, error)


def _with(arguments: "Arguments", settings: Sequence[str]) -> "Arguments":
    """Add settings, whose values are written as in the config file. Raises ConfigError."""
    from exporter.base import text_files  # noqa: PLC0415  (YAML)
    from exporter.config import Arguments, ConfigError  # noqa: PLC0415

    overrides: dict[str, Any] = dict(arguments.overrides)
    origins = dict(arguments.origins)
    for setting in settings:
        key, equals, text = setting.partition("=")
        origin = f"--set {key}"
        if not equals or not key.startswith(SECTIONS) or key.endswith(".") or ".." in key:
            raise ConfigError(
                f"--set: expected a key below policy or limits and its value, such as policy.grace=60s, got {setting}"
            )
        try:
            value = text_files.plain(text.encode(errors="surrogateescape"))
        except text_files.MalformedError as error:
            raise ConfigError(error.at(origin)) from error
        if value is None:
            raise ConfigError(f"{origin}: expected a value, such as policy.grace=60s")
        overrides[key], origins[key] = value, origin
    return Arguments(arguments.config_file, overrides, origins)


async def _played(file: Path, config: "Config", hear: "Heard") -> tuple[int, str]:
    """Decide on each round of the recording, and give it to `hear`; return their number, and what is missing."""
    from enforcer.policy.decide import decide  # noqa: PLC0415
    from enforcer.policy.history import History, Moment  # noqa: PLC0415
    from enforcer.policy.outcomes import rehearsed  # noqa: PLC0415
    from exporter.recording import Reading  # noqa: PLC0415
    from exporter.recording.replay import snapshots  # noqa: PLC0415

    history, before, rounds = History(), None, 0
    with Reading(file) as reading:
        rules = _rules(config, reading.header.interval, file)
        async for snapshot in snapshots(reading, config):
            now = Moment(snapshot.monotonic, snapshot.monotonic)
            history, verdict = decide(snapshot, rules, history, now)
            rounds += 1
            hear(snapshot, verdict, before)
            if verdict.action is not None:
                history = rehearsed(history, verdict.action, now)
            before = verdict
        return rounds, reading.torn


async def _replay(file: Path, config: "Config", *, as_json: bool) -> None:
    """Print each change under one policy."""
    from enforcer.messages.log_lines import lines  # noqa: PLC0415

    counts = _Counts()

    def hear(snapshot: "Snapshot", verdict: "Verdict", before: "Verdict | None") -> None:
        for line in lines(verdict, before):
            _print(snapshot, line.event.removeprefix("enforcer."), line.data, as_json=as_json)
        counts.hear(verdict)

    rounds, torn = await _played(file, config, hear)
    summary = json.dumps(counts.data(rounds, torn)) if as_json else counts.text(rounds, torn)
    put(f"{summary}\n")


async def _compare(file: Path, config: "Config", other: "Config", namespace: argparse.Namespace) -> None:
    """Print the courses of two policies side by side."""
    from enforcer.messages.timeline import Course, compared  # noqa: PLC0415

    courses, sums = (Course(), Course()), (_Counts(), _Counts())
    told: list[tuple[int, str]] = []
    for course, counts, each in zip(courses, sums, (config, other), strict=True):

        def hear(
            snapshot: "Snapshot",
            verdict: "Verdict",
            _: "Verdict | None",
            course: Course = course,
            counts: _Counts = counts,
        ) -> None:
            course.hear(verdict, snapshot.taken_at)
            counts.hear(verdict)

        told.append(await _played(file, each, hear))
    if namespace.json:
        _put_json(courses, sums, told, namespace.settings)
        return
    width = shutil.get_terminal_size().columns if on_terminal(sys.stdout) else WIDTH
    written = [
        f"A: {namespace.config or 'the defaults'}",
        f"B: A with {' '.join(namespace.settings)}",
        *compared(*courses, max(width, 40), _clock),
        "",
        *(f"{label}: {counts.text(*of)}" for label, counts, of in zip("AB", sums, told, strict=True)),
    ]
    put("".join(f"{printable(line)}\n" for line in written))  # names of a recording may hold control characters


def _put_json(
    courses: "tuple[Course, Course]",
    sums: "tuple[_Counts, _Counts]",
    told: Sequence[tuple[int, str]],
    settings: Sequence[str],
) -> None:
    from enforcer.messages.timeline import data_of  # noqa: PLC0415

    lines = [{"event": "container", **each} for each in data_of(*courses, _written)]
    for label, counts, of in zip("ab", sums, told, strict=True):
        lines.append({**counts.data(*of), "policy": label, "set": list(settings) if label == "b" else []})
    put("".join(json.dumps(line) + "\n" for line in lines))


def _rules(config: "Config", interval: float, file: Path) -> "Rules":
    """Take the config's rules at the recording's pace. Raises ConfigError where they make no sense at it."""
    from enforcer.policy.rules import RulesError  # noqa: PLC0415
    from enforcer.policy.vocabulary import Mode  # noqa: PLC0415
    from enforcer.runtime.policy_config import rules_of  # noqa: PLC0415
    from exporter.config import ConfigError  # noqa: PLC0415

    rules = rules_of(config)
    try:
        return replace(rules, interval=interval, mode=Mode.DRY_RUN if rules.mode is Mode.ENFORCE else rules.mode)
    except RulesError as error:
        raise ConfigError(
            f"policy.{error.key}: the rounds of {file} are {interval:g}s apart; expected {error.expected}"
        ) from error


class _Counts:
    """The summary of a replay: actions, and refusals by reason."""

    def __init__(self) -> None:
        self._actions: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    def hear(self, verdict: "Verdict") -> None:
        self._actions.update([verdict.action.rung] if verdict.action else [])
        self._held.update(str(refusal.reason) for refusal in verdict.refusals)

    def data(self, rounds: int, torn: str) -> dict[str, Any]:
        return {"event": "summary", "rounds": rounds, "torn": torn, "rehearsed": self._actions, "held": self._held}

    def text(self, rounds: int, torn: str) -> str:
        actions = ", ".join(f"{count} {action}" for action, count in sorted(self._actions.items()))
        refusals = ", ".join(f"{count} {reason}" for reason, count in sorted(self._held.items()))
        parts = [
            f"dry run: {actions}" if actions else "no action was due",
            f"held: {refusals}" if refusals else "",
            printable(torn),
        ]
        return f"{rounds} rounds: {'; '.join(filter(None, parts))}"


def _print(snapshot: "Snapshot", event: str, data: Any, *, as_json: bool) -> None:
    if as_json:
        head = {"at": _written(snapshot.taken_at), "round": snapshot.round, "event": event}
        put(json.dumps({**head, **data, **_as_in_0_1(data)}) + "\n")
        return
    at = datetime.fromtimestamp(snapshot.taken_at, UTC)
    name = "/".join(str(data[key]) for key in _NAMES if data.get(key))
    rest = {key: value for key, value in data.items() if key not in _NAMES and value not in {None, ""}}
    facts = " ".join(f"{_SHORT.get(key, key)}={_shown(key, value)}" for key, value in rest.items())
    line = f"{at:%Y-%m-%d %H:%M:%SZ}  {event:<10} {f'{name}  ' if name else ''}{facts}"
    put(f"{printable(line)}\n")  # names of a recording may hold control characters


def _as_in_0_1(data: Any) -> dict[str, object]:
    """Repeat the figures under the keys that version 0.1 wrote: scripts read them."""
    from enforcer.messages.sentences import duration  # noqa: PLC0415

    if "used_bytes" not in data:
        return {}
    over = data.get("over_seconds")
    return {
        "used": data["used_bytes"],
        "limit": data["limit_bytes"],
        "over_for": None if over is None else duration(over),
    }


def _shown(key: str, value: object) -> object:
    from enforcer.policy.vocabulary import Reason  # noqa: PLC0415
    from exporter.limits.explaining import size  # noqa: PLC0415

    if isinstance(value, Reason):
        return f"{value} ({value.words})"
    if key.endswith("_seconds") and isinstance(value, float):
        return f"{value:g}s"
    return size(value).replace(" ", "") if key.endswith("_bytes") and isinstance(value, int) else value


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
