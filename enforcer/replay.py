"""
`gpusteward replay FILE --config FILE`: what the policy would have done, when, and why.

What comes in: a recording, and a config. What goes out: a line for each change on standard output, what it comes to,
and the exit code.

The law: the same code decides as in the daemon, on the same snapshots. Nothing is done to anybody: where the config
says enforce, the actions are rehearsed, because in a recording the victim stays.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enforcer.cli import Commands
    from enforcer.history import Verdict
    from enforcer.rules import Rules
    from exporter.config import Config
    from exporter.model import Snapshot

PROGRAM = "gpusteward replay"


def add(commands: "Commands") -> None:
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
    from enforcer.config import meaningless  # noqa: PLC0415  (with the sampler comes more than --help needs)
    from exporter import logs  # noqa: PLC0415
    from exporter.config import Arguments, ConfigError, load  # noqa: PLC0415
    from exporter.recording import RecordingError  # noqa: PLC0415
    from exporter.running import refuse  # noqa: PLC0415

    logs.configure("warning", "auto")
    said = {"policy.mode": namespace.mode} if namespace.mode else {}
    arguments = Arguments(namespace.config, said, dict.fromkeys(said, "--mode"))
    code = 0
    try:
        config = load(arguments, meaningless)
        asyncio.run(_replay(namespace.recording, config, as_json=namespace.json))
    except* ConfigError as errors:
        code = refuse(PROGRAM, errors, 2)
    except* RecordingError as errors:
        code = refuse(PROGRAM, errors, 1)
    return code


async def _replay(file: Path, config: "Config", *, as_json: bool) -> None:
    from enforcer.config import rules_of  # noqa: PLC0415
    from enforcer.history import History, Moment  # noqa: PLC0415
    from enforcer.policy import decide  # noqa: PLC0415
    from enforcer.replaying import snapshots  # noqa: PLC0415
    from enforcer.telling import lines  # noqa: PLC0415
    from exporter.recording import Reading  # noqa: PLC0415

    history, before = History(), None
    counts: Counter[str] = Counter()
    rounds = 0
    with Reading(file) as reading:
        rules = _rehearsed(replace(rules_of(config), interval=reading.header.interval))
        async for snapshot in snapshots(reading, config):
            moment = Moment(snapshot.monotonic, snapshot.monotonic)
            history, verdict = decide(snapshot, rules, history, moment)
            rounds += 1
            for line in lines(verdict, before):
                _print(snapshot, line.event.removeprefix("enforcer."), line.data, as_json=as_json)
            counts.update(_counted(verdict))
            before = verdict
        torn = reading.torn
    if as_json:
        sys.stdout.write(json.dumps({"event": "summary", "rounds": rounds, "torn": torn, **counts}) + "\n")
    else:
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "nothing would have been done"
        sys.stdout.write(f"{rounds} rounds: {told}{f' ({torn})' if torn else ''}\n")
    sys.stdout.flush()


def _rehearsed(rules: "Rules") -> "Rules":
    from enforcer.terms import Mode  # noqa: PLC0415

    return replace(rules, mode=Mode.DRY_RUN) if rules.mode is Mode.ENFORCE else rules


def _counted(verdict: "Verdict") -> "Iterator[str]":
    if verdict.action is not None:
        yield f"{verdict.action.rung} rehearsed"
    for refusal in verdict.refusals:
        yield f"held: {refusal.reason}"


def _print(snapshot: "Snapshot", event: str, data: Any, *, as_json: bool) -> None:
    at = datetime.fromtimestamp(snapshot.taken_at, UTC)
    if as_json:
        sys.stdout.write(json.dumps({"at": at.isoformat(), "round": snapshot.round, "event": event, **data}) + "\n")
        return
    who = "/".join(str(data[key]) for key in ("namespace", "pod", "container") if data.get(key))
    rest = {key: value for key, value in data.items() if key not in {"namespace", "pod", "container"} and value}
    told = " ".join(f"{key}={_shown(key, value)}" for key, value in rest.items())
    sys.stdout.write(f"{at:%Y-%m-%d %H:%M:%S}  {event:<10} {f'{who}  ' if who else ''}{told}\n")


def _shown(key: str, value: object) -> object:
    from exporter.limits.explaining import size  # noqa: PLC0415

    return size(value).replace(" ", "") if key in {"used", "limit"} and isinstance(value, int) else value
