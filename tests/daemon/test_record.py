"""`gpusteward record`, and a daemon that plays a recording, as an operator meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from daemon.running import Daemon
from driver.node import FakeNode, FakeProcess, GiB, MiB, gpus
from exporter.recording import Reading, RecordedRound
from patience import PATIENCE
from scraped import series

pytestmark = pytest.mark.daemon

COMMAND = Path(sys.executable).with_name("gpusteward")
FAST = ("--sampling.interval=200ms", "--log.format=json")


class StartRecord(Protocol):
    def __call__(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]: ...


@pytest.fixture
def start_record() -> Iterator[StartRecord]:
    """Start `gpusteward record`; it ends with the test."""
    with ExitStack() as stack:

        def start(*words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [str(COMMAND), "record", *words],
                    env={**os.environ, "NODE_NAME": "test-node", **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def recorded(path: Path) -> tuple[list[RecordedRound], str]:
    with Reading(path) as reading:
        return list(reading), reading.torn


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    errors = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, errors


def wait_for_rounds(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until the file has so many whole rounds: it can be read while it grows."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() or _whole_rounds(path) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def _whole_rounds(path: Path) -> int:
    *lines, _in_writing = path.read_bytes().split(b"\n")
    return sum(line.startswith(b'{"line":"round"') for line in lines)


def test_so_many_rounds(tmp_path: Path, fake_node: FakeNode, start_record: StartRecord) -> None:
    """`--rounds` ends it by itself, exit code 0; the file has what the driver said, and says when and where."""
    fake_node.write(gpus(2, total=40 * GiB, processes=(FakeProcess(os.getpid(), 3 * GiB),)))
    path = tmp_path / "r.jsonl.gz"
    flags = ("--rounds=3", "--node.trust-pid-namespace", "--names.source=none", *FAST)
    code, errors = ended(start_record("-o", str(path), *flags, env=fake_node.environment()))
    assert code == 0, errors
    assert "test-node, a round every 200ms" in errors and f"3 rounds, {path.stat().st_size} bytes" in errors
    rounds, torn = recorded(path)
    assert ([one.number for one in rounds], torn) == ([1, 2, 3], "")
    for one in rounds:
        assert [sample.gpu.memory.used for sample in one.samples if sample.gpu.memory] == [3 * GiB, 3 * GiB]
        assert all(os.getpid() in host.sample.processes for host in one.hosts)
    with Reading(path) as reading:
        assert (reading.header.node, reading.header.interval) == ("test-node", 0.2)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "r"), (signal.SIGTERM, "r"), (signal.SIGINT, "r.gz")])
def test_a_signal_ends_it_cleanly(tmp_path: Path, start_record: StartRecord, number: signal.Signals, name: str) -> None:
    """Ctrl-C and SIGTERM: exit code 0, no traceback, and a file that is complete to its last byte."""
    path = tmp_path / name
    process = start_record("-o", str(path), "--devices=simulated", *FAST)
    if name == "r":
        wait_for_rounds(path, 2, process)
    else:
        assert process.stderr is not None and "Ctrl-C ends it" in process.stderr.readline()
    process.send_signal(number)
    code, errors = ended(process)
    assert code == 0 and "Traceback" not in errors, errors
    rounds, torn = recorded(path)
    assert torn == "" and len(rounds) >= (2 if name == "r" else 0)


def test_a_kill_costs_at_most_the_round_in_writing(tmp_path: Path, start_record: StartRecord) -> None:
    """After SIGKILL the rounds before it are read."""
    path = tmp_path / "r"
    process = start_record("-o", str(path), "--devices=simulated", *FAST)
    wait_for_rounds(path, 2, process)
    process.kill()
    ended(process)
    assert len(recorded(path)[0]) >= 2


def test_a_duration(tmp_path: Path, start_record: StartRecord) -> None:
    """`--duration` ends it by itself."""
    path = tmp_path / "r"
    code, errors = ended(start_record("-o", str(path), "--devices=simulated", "--duration=700ms", *FAST))
    assert code == 0 and recorded(path)[0], errors


def test_what_goes_wrong_is_said_in_a_sentence(tmp_path: Path, start_record: StartRecord) -> None:
    """A full disk, a file that is there, no driver: 1; wrong usage and config: 2; never a traceback."""
    there = tmp_path / "there"
    there.write_text("evidence")
    simulated = ("--devices=simulated", *FAST)
    for words, code, told in (
        (("-o", "/dev/full", *simulated), 1, "/dev/full: cannot be written: no space left on device"),
        (("-o", str(there), *simulated), 1, "exists already"),
        (("-o", str(tmp_path / "r"), "--devices=nvml"), 1, "the NVIDIA driver cannot be used"),
        (("-o", str(tmp_path / "r"), "--sampling.interval=1ms"), 2, "--sampling.interval: expected a duration"),
        (("-o", str(tmp_path / "r"), "--rounds=0"), 2, "expected a whole number of at least 1"),
        (("-o", str(tmp_path / "r"), "--duration=soon"), 2, "is not a duration"),
        (("-o", str(tmp_path / "r"), "--duration=0"), 2, "--duration: expected at least 1ms, got '0'"),
        ((), 2, "required: -o"),
    ):
        found, errors = ended(start_record(*words, env={"LD_LIBRARY_PATH": ""}))
        assert (found, told in errors, "Traceback" in errors) == (code, True, False), errors
    assert there.read_text() == "evidence"


def test_a_daemon_plays_what_was_recorded(tmp_path: Path, start_record: StartRecord) -> None:
    """
    A bug report on a laptop: page, JSON and metrics show the recorded node by its name, ready and fresh.

    The snapshot says whose it is; check finds the recording good; a recording of the recording is one, too.
    """
    path = tmp_path / "r.gz"
    assert ended(start_record("-o", str(path), "--devices=simulated", "--rounds=2", *FAST))[0] == 0
    first = recorded(path)[0][0]
    with Daemon(f"--devices=recorded:{path}", "--node-name=laptop", *FAST) as daemon:
        snapshot = daemon.until(lambda s: s if s["round"] > 3 else None, "rounds, also after its end")
        assert (snapshot["node"], snapshot["complete"]) == ("test-node", True)
        assert [fault["reason"] for fault in snapshot["faults"] if fault["source"] == "devices"] == ["recording"]
        assert {gpu["uuid"] for gpu in snapshot["gpus"]} == set(first.present)
        assert {pod["name"] for pod in snapshot["pods"]} <= {pod.name for pod in first.inventory.pods.values()}
        assert snapshot["containers"] and snapshot["limits"]
        assert daemon.get("/readyz")[0] == 200
        used = series(daemon.page(), "device_memory_used_bytes", "node", "uuid", "gpu_instance")
        assert {node for node, *_ in used} == {"test-node"}
        assert daemon.get("/")[0] == 200
    check = subprocess.run(
        [str(COMMAND), "check", f"--devices=recorded:{path}", "--web.listen-address=127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert check.returncode == 0 and "plays, recorded on test-node" in check.stdout, check.stdout
    again = tmp_path / "again"
    assert ended(start_record("-o", str(again), f"--devices=recorded:{path}", "--rounds=1", *FAST))[0] == 0
    assert recorded(again)[0][0].inventory.pods.keys() == first.inventory.pods.keys()


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    """The daemon ends with exit code 1 and the place; check says the same in a line."""
    path = tmp_path / "r"
    path.write_text(json.dumps({"kind": "Pod"}) + "\n")
    for words, out in (
        (("-m", "exporter", "--web.listen-address=127.0.0.1:0"), "stderr"),
        (("-m", "enforcer.cli", "check", "--web.listen-address=127.0.0.1:0"), "stdout"),
    ):
        found = subprocess.run(
            [sys.executable, *words, f"--devices=recorded:{path}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert found.returncode == 1
        assert f"{path}:1: expected the header of a recording" in getattr(found, out), found


def test_anonymized_names_nobody(tmp_path: Path, start_record: StartRecord) -> None:
    """`--anonymize`: pseudonyms all over, in the header as well; the numbers are the same."""
    plain, other = tmp_path / "plain", tmp_path / "other"
    for path, flags in ((plain, ()), (other, ("--anonymize",))):
        assert ended(start_record("-o", str(path), "--devices=simulated", "--rounds=1", *flags, *FAST))[0] == 0
    text = other.read_text()
    (with_names,), (without,) = recorded(plain)[0], recorded(other)[0]
    for pod in with_names.inventory.pods.values():
        assert pod.uid not in text and f'"{pod.name}"' not in text
    assert "test-node" not in text and without.present == with_names.present
    assert MiB < sum(p.memory or 0 for sample in without.samples for p in sample.processes or ())
