"""
`gpusteward replay FILE --config FILE`: what the policy would have done, when, and why.

What comes in: a recording, and a config. What goes out: a line for each change on standard output, what it comes to,
and the exit code.

The rule: the same code decides as in the daemon, on the same snapshots. Nothing is acted on: where the config says
enforce, this is a dry run, because in a recording the victim stays.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enforcer.commands import Commands

if TYPE_CHECKING:
    from enforcer.policy.rules import Rules
    from exporter.config import Config
    from exporter.model import Snapshot

PROGRAM = "gpusteward replay"
_NAMES = ("namespace", "pod", "container")


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "replay",
        help="run the policy over a recording, and print what it would have done, when and why",
        description="Run the policy of a config over a recording, and print what it would have done, when and why. "
        "Exit code 0, 1 when the recording cannot be read, 2 on wrong usage or config.",
        epilog="example: gpusteward replay node.jsonl.gz --config gpusteward.yaml --mode enforce",
        allow_abbrev=False,
    )
    parser.add_argument("recording", type=Path, metavar="FILE", help="what `gpusteward record` made")
    parser.add_argument("--config", type=Path, metavar="FILE", help="config whose limits and policy count")
    parser.add_argument("--mode", metavar="MODE", help="instead of the config's policy.mode")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
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
        try:
            asyncio.run(_replay(namespace.recording, config, as_json=namespace.json))
        except BrokenPipeError:  # `| head` has read enough, which is no error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end

    return exit_code(PROGRAM, work, RecordingError)


async def _replay(file: Path, config: "Config", *, as_json: bool) -> None:
    from enforcer.messages.notices import lines  # noqa: PLC0415
    from enforcer.policy.decide import decide  # noqa: PLC0415
    from enforcer.policy.history import History, Moment  # noqa: PLC0415
    from exporter.limits.explaining import printable  # noqa: PLC0415
    from exporter.recording import Reading  # noqa: PLC0415
    from exporter.recording.replay import snapshots  # noqa: PLC0415

    history, before = History(), None
    rehearsed: Counter[str] = Counter()
    held: Counter[str] = Counter()
    rounds = 0
    with Reading(file) as reading:
        rules = _rules(config, reading.header.interval, file)
        async for snapshot in snapshots(reading, config):
            history, verdict = decide(snapshot, rules, history, Moment(snapshot.monotonic, snapshot.monotonic))
            rounds += 1
            for line in lines(verdict, before):
                _print(snapshot, line.event.removeprefix("enforcer."), line.data, as_json=as_json)
            rehearsed.update([verdict.action.rung] if verdict.action else [])
            held.update(str(refusal.reason) for refusal in verdict.refusals)
            before = verdict
        torn = reading.torn
    if as_json:
        text = json.dumps({"event": "summary", "rounds": rounds, "torn": torn, "rehearsed": rehearsed, "held": held})
    else:
        actions = ", ".join(f"{count} {action} rehearsed" for action, count in sorted(rehearsed.items()))
        refusals = ", ".join(f"held {count} times: {reason}" for reason, count in sorted(held.items()))
        parts = [actions or "nothing would have been done", refusals, printable(torn)]
        text = f"{rounds} rounds: {'; '.join(filter(None, parts))}"
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


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


def _print(snapshot: "Snapshot", event: str, data: Any, *, as_json: bool) -> None:
    from exporter.limits.explaining import printable  # noqa: PLC0415

    at = datetime.fromtimestamp(snapshot.taken_at, UTC)
    if as_json:
        sys.stdout.write(json.dumps({"at": at.isoformat(), "round": snapshot.round, "event": event, **data}) + "\n")
        return
    name = "/".join(str(data[key]) for key in _NAMES if data.get(key))
    rest = {key: value for key, value in data.items() if key not in _NAMES and value not in {None, ""}}
    facts = " ".join(f"{key}={_shown(key, value)}" for key, value in rest.items())
    line = f"{at:%Y-%m-%d %H:%M:%SZ}  {event:<10} {f'{name}  ' if name else ''}{facts}"
    sys.stdout.write(f"{printable(line)}\n")  # names of a recording may hold control characters


def _shown(key: str, value: object) -> object:
    from enforcer.policy.vocabulary import Reason  # noqa: PLC0415
    from exporter.limits.explaining import size  # noqa: PLC0415

    if isinstance(value, Reason):
        return f"{value} ({value.words})"
    if key == "over_for":
        return str(value).replace(" ", "")
    return size(value).replace(" ", "") if key in {"used", "limit"} and isinstance(value, int) else value
