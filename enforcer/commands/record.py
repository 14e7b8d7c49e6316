"""
`gpusteward record -o FILE`: read this node as the daemon does, and store the answers of all sources, round by round.

What comes in: the flags of the daemon. What goes out: a file that `gpusteward replay` and `--devices recorded:FILE`
read (docs/recording.md), messages on standard error, and the exit code.

The rule: it only reads. It serves nothing, changes nothing, and keeps nothing but the file. Beside a running daemon it
asks the driver a second time, and shares no other state.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from enforcer.commands import Commands, count, duration
from exporter.base.version import VERSION
from exporter.config.arguments import ALL, add_flags, chosen

if TYPE_CHECKING:
    from exporter.config import Config
    from exporter.recording import Writing
    from exporter.rounds.first_seen_file import FirstSeen

PROGRAM = "gpusteward record"
UNUSED = frozenset({"--mode", "--web.listen-address", "--web.config.file", "--web.api"})
"""The daemon's flags that change nothing here."""
LEAST = 0.001
"""The shortest recording that a user may ask for, in seconds."""


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "record",
        help="record the answers of driver, kernel and Kubernetes to a file, for a replay or a bug report",
        usage="%(prog)s -o FILE [FLAGS]",
        description="Record the answers of driver, kernel and Kubernetes on this node to a file, until Ctrl-C. It "
        "reads the node as the daemon does, beside a running daemon or without one. Every flag of `gpusteward run` is "
        "accepted. Exit code: 0 when the file is complete, 1 when the node cannot be read or the file cannot be "
        "written, 2 for wrong usage or configuration.",
        epilog="example: gpusteward record -o node.jsonl.gz --duration 10m --anonymize",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-o",
        dest="output",
        required=True,
        type=Path,
        metavar="FILE",
        help="file to write; compressed if its name ends in .gz",
    )
    parser.add_argument(
        "--duration",
        type=partial(duration, least=LEAST),
        metavar="DURATION",
        help='stop after this time, such as "10m"',
    )
    parser.add_argument("--rounds", type=count, metavar="N", help="stop after this number of rounds")
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="replace the names and ids of pods, containers, namespaces, workloads and the node with pseudonyms",
    )
    add_flags(parser, ALL - UNUSED)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Record, and return the exit code."""
    from exporter.config import load  # noqa: PLC0415
    from exporter.devices import DeviceError  # noqa: PLC0415
    from exporter.recording import RecordingError  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415  (with the daemon come driver, HTTP and more)
    from exporter.running import exit_code, until_signalled  # noqa: PLC0415

    def work() -> None:
        config = load(chosen(namespace, os.environ))
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(_record(config, namespace)))

    return exit_code(PROGRAM, work, DeviceError, RecordingError)


async def _record(config: "Config", wanted: argparse.Namespace) -> None:
    """Record until enough, or until cancelled. Raises DeviceError or RecordingError when that cannot be done."""
    from exporter.base.clock import SystemClock  # noqa: PLC0415
    from exporter.daemon import beat_of, limiting_of  # noqa: PLC0415
    from exporter.model import Snapshot  # noqa: PLC0415
    from exporter.recording.tape import Tape  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415  (as above)
    from exporter.rounds.latest import Latest  # noqa: PLC0415
    from exporter.rounds.sampler import Sampler  # noqa: PLC0415
    from exporter.sources import open_sources  # noqa: PLC0415

    clock, latest, enough = SystemClock(), Latest(), asyncio.Event()
    sources = await open_sources(config, clock)
    try:
        limiting = limiting_of(config)
        tape = Tape(sources.devices, sources.host, sources.inventory)
        with _opened(wanted, config, sources.node, clock.time(), limiting.first_seen) as file:

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
                beat=beat_of(config),
                clock=clock,
                limiting=limiting,
                keep=keep,
            )
            _say(f"{sources.node}, a round every {config.sampling.interval}, to {wanted.output}; Ctrl-C ends it")
            try:
                async with asyncio.TaskGroup() as tasks:
                    work = [
                        tasks.create_task(tape.inventory.run(), name="names"),
                        tasks.create_task(sampler.run(latest), name="sampling"),
                        tasks.create_task(logs.tell(latest, limiting.invalid), name="telling"),
                    ]
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(enough.wait(), wanted.duration)
                    for task in work:
                        task.cancel()
            finally:
                file.close()
                _say(f"{file.rounds} rounds, {file.size} bytes in {wanted.output}")
    finally:
        await sources.devices.close()


def _opened(wanted: argparse.Namespace, config: "Config", node: str, now: float, seen: "FirstSeen") -> "Writing":
    """Create the file, with the choice of names and declarations to keep. Raises RecordingError."""
    from exporter.config import catalogue_of  # noqa: PLC0415  (as above)
    from exporter.limits.first_seen import as_data  # noqa: PLC0415
    from exporter.recording import FORMAT, Header, Writing  # noqa: PLC0415
    from exporter.recording.anonymizing import Pseudonyms  # noqa: PLC0415
    from exporter.recording.keeping import Keeping  # noqa: PLC0415

    policy = config.policy
    labels = (policy.namespaces.label, *(f"{key}={value}" for key, value in policy.protect.labels.items()))
    keeping = Keeping.of(catalogue_of(config.limits), labels)
    header = Header(
        gpusteward_recording=FORMAT,
        program=VERSION,
        node=node,
        started_at=now,
        interval=float(config.sampling.interval),
        first_seen={uid: [as_data(declaration) for declaration in pod] for uid, pod in seen.items()},
    )
    if not wanted.anonymize:
        return Writing(wanted.output, header, inventory=keeping.inventory)
    names = Pseudonyms(secrets.token_bytes(32), keeping)
    return Writing(wanted.output, names.header(header), inventory=names.inventory, host=names.host, owner=names.owner)


def _say(text: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {text}\n")
    sys.stderr.flush()
