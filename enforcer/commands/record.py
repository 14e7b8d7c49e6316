"""
`gpusteward record -o FILE`: look at this node as the daemon does, and store what the sources say, round by round.

What comes in: the flags of the daemon. What goes out: a file that `gpusteward replay` and `--devices recorded:FILE`
read (docs/recording.md), what is worth knowing on standard error, and the exit code.

The law: it only looks. It serves nothing, changes nothing, and remembers nothing but the file; beside a running daemon
it asks the driver a second time, and no other state is shared.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.config.arguments import add_flags, chosen

if TYPE_CHECKING:
    from enforcer.cli import Commands
    from exporter.config import Config
    from exporter.recording import Writing
    from exporter.rounds.first_seen_file import FirstSeen

PROGRAM = "gpusteward record"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record: until so many rounds or seconds have passed, or until a signal where neither is said."""

    file: Path
    rounds: int | None = None
    duration: float | None = None
    anonymize: bool = False


def add(commands: "Commands") -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "record",
        help="store what driver, kernel and Kubernetes say, for a replay or a bug report",
        description="Look at this node as the daemon does, and store what driver, kernel and Kubernetes say, until "
        "Ctrl-C. Takes the flags of the daemon, and serves nothing. Exit code 0, 1 when this node cannot be looked at "
        "or the file not be written on, 2 on wrong usage or config.",
        epilog="example: gpusteward record -o node.jsonl.gz --duration 10m --anonymize",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-o", dest="output", required=True, type=Path, metavar="FILE", help="file to make; compressed if it ends in .gz"
    )
    parser.add_argument("--duration", type=_duration, metavar="DURATION", help='end after this time, such as "10m"')
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="end after so many rounds, early ones included")
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace the names and ids of pods, containers, namespaces, workloads and node by pseudonyms",
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Record, and return the exit code."""
    from exporter.config import ConfigError, load  # noqa: PLC0415
    from exporter.devices import DeviceError  # noqa: PLC0415
    from exporter.recording import RecordingError  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415  (with the daemon come driver, HTTP and more)
    from exporter.running import refuse, until_signalled  # noqa: PLC0415

    wanted = Wanted(namespace.output, namespace.rounds, namespace.duration, anonymize=namespace.anonymize)
    code = 0
    try:
        config = load(chosen(namespace, os.environ))
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(record(config, wanted)))
    except* ConfigError as errors:
        code = refuse(PROGRAM, errors, 2)
    except* (DeviceError, RecordingError) as errors:
        code = refuse(PROGRAM, errors, 1)
    return code


async def record(config: "Config", wanted: Wanted) -> None:
    """Record until enough, or until cancelled. Raises DeviceError or RecordingError when that cannot be done."""
    from exporter.base.clock import SystemClock  # noqa: PLC0415
    from exporter.config import catalogue_of, options_of  # noqa: PLC0415
    from exporter.daemon import open_sources  # noqa: PLC0415
    from exporter.model import Snapshot  # noqa: PLC0415
    from exporter.recording.tape import Tape  # noqa: PLC0415
    from exporter.rounds import first_seen_file, logs  # noqa: PLC0415  (as above)
    from exporter.rounds.latest import Latest  # noqa: PLC0415
    from exporter.rounds.limits import Limiting  # noqa: PLC0415
    from exporter.rounds.sampler import Beat, Sampler  # noqa: PLC0415

    clock = SystemClock()
    sources = await open_sources(config, clock)
    try:
        seen = first_seen_file.load(config.limits.first_seen_file) if config.limits.first_seen_file else {}
        limiting = Limiting(catalogue_of(config.limits), options_of(config.limits), seen)
        tape = Tape(sources.devices, sources.host, sources.inventory)
        with opened(wanted, config, sources.node, clock.time(), seen) as file:
            enough = asyncio.Event()

            def keep(snapshot: Snapshot) -> None:
                if not enough.is_set():
                    file.add(tape.round(snapshot))
                    if file.rounds == wanted.rounds:
                        enough.set()

            sampler = Sampler(
                node=sources.node,
                devices=tape.devices,
                host=tape.host,
                inventory=tape.inventory,
                beat=Beat(float(config.sampling.interval), float(config.sampling.fast_interval)),
                clock=clock,
                limiting=limiting,
                keep=keep,
            )
            latest = Latest()
            _say(f"{sources.node}, a round every {config.sampling.interval}, to {wanted.file}; Ctrl-C ends it")
            try:
                async with asyncio.TaskGroup() as tasks:
                    work = [
                        tasks.create_task(tape.inventory.run(), name="names"),
                        tasks.create_task(sampler.run(latest), name="sampling"),
                        tasks.create_task(logs.tell(latest, limiting.invalid), name="telling"),
                    ]
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wanted.duration):
                            await enough.wait()
                    for task in work:
                        task.cancel()
            finally:
                file.close()
                _say(f"{file.rounds} rounds, {file.size} bytes in {wanted.file}")
    finally:
        await sources.devices.close()


def opened(wanted: Wanted, config: "Config", node: str, now: float, seen: "FirstSeen") -> "Writing":
    """Create the file, with what is to be kept of names and declarations. Raises RecordingError."""
    from importlib.metadata import version  # noqa: PLC0415  (as above)

    from exporter.config import catalogue_of  # noqa: PLC0415
    from exporter.limits.first_seen import as_data  # noqa: PLC0415
    from exporter.recording import FORMAT, Header, Writing  # noqa: PLC0415
    from exporter.recording.anonymizing import Pseudonyms  # noqa: PLC0415
    from exporter.recording.keeping import Keeping  # noqa: PLC0415

    policy = config.policy
    labels = (policy.namespaces.label.partition("=")[0], *policy.protect.labels)
    keeping = Keeping.of(catalogue_of(config.limits), labels)
    header = Header(
        gpusteward_recording=FORMAT,
        program=version("gpusteward"),
        node=node,
        started_at=now,
        interval=float(config.sampling.interval),
        first_seen={uid: [as_data(one) for one in pod] for uid, pod in seen.items()},
    )
    if not wanted.anonymize:
        return Writing(wanted.file, header, inventory=keeping.inventory)
    other = Pseudonyms(secrets.token_bytes(32), keeping)
    return Writing(
        wanted.file,
        other.header(header),
        inventory=lambda whole: other.inventory(keeping.inventory(whole)),
        host=other.host,
        owner=other.owner,
    )


def _duration(text: str) -> float:
    from exporter.base.quantities import parse_duration  # noqa: PLC0415  (as above)

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError("expected more than nothing")
    return seconds


def _rounds(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 0 < len(text) < 10 or int(text) == 0:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"expected a number of rounds, got {text!a}")
    return int(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {text}\n")
    sys.stderr.flush()
