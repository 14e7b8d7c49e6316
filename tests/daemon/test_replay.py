"""`gpusteward replay` as a process: on a recording of `gpusteward record`, whole, torn, and with a reader that ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from daemon import commands
from daemon.commands import complaint, shell
from daemon.films import CALM, OVER, film
from patience import PATIENCE

pytestmark = pytest.mark.daemon

POLICY = """
sampling: {interval: 200ms}
policy: {mode: dry-run, warn_after: 1s, grace: 30s, hold_off: 1s, spacing: 30s}
"""


def gpusteward(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return commands.gpusteward(*words, NODE_NAME="test-node")


@pytest.fixture(scope="module")
def excess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a film of an excess that lasts for half a minute."""
    return film(tmp_path_factory.mktemp("films") / "excess.jsonl", (CALM, 1.0), (OVER, 33.0), (CALM, 2.0))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    """From the node to the verdict, with the two commands alone."""
    path = tmp_path / "node.jsonl.gz"
    flags = ("--devices=simulated", "--rounds=3", "--sampling.interval=200ms")
    assert gpusteward("record", "-o", path, *flags).returncode == 0
    replayed = gpusteward("replay", path, "--json")
    assert (replayed.returncode, replayed.stderr) == (0, "")
    *told, summary = map(json.loads, replayed.stdout.splitlines())
    assert [line["mode"] for line in told if line["event"] == "mode"] == ["observe"]
    assert (summary["rounds"], summary["torn"]) == (3, "")


def test_an_excess_is_rehearsed_as_it_would_have_been(excess: Path, policy: Path) -> None:
    """Half a minute in a second. Mode `enforce` is replayed like `dry-run`, with the same output."""
    outs = []
    for mode in ("dry-run", "enforce"):
        found = gpusteward("replay", excess, "--config", policy, "--mode", mode)
        assert (found.returncode, found.stderr) == (0, "")
        outs.append(found.stdout)
    assert outs[0] == outs[1]
    mine = [line.split()[2] for line in outs[0].splitlines() if "anna-notebook-0" in line]
    assert mine == ["over", "grace", "due", "dry_run", "due", "held"], "two calm seconds do not empty the level"
    assert "dry run: 1 evict" in outs[0].splitlines()[-1]


def test_a_torn_recording_is_told(excess: Path, policy: Path, tmp_path: Path) -> None:
    """What is there is replayed, and the last line says what is missing; exit code 0."""
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(excess.read_bytes()[:-40])
    found = gpusteward("replay", torn, "--config", policy)
    assert found.returncode == 0
    last = found.stdout.splitlines()[-1]
    assert "dry run: 1 evict" in last and "torn" in last, last
    summary = json.loads(gpusteward("replay", torn, "--config", policy, "--json").stdout.splitlines()[-1])
    assert summary["torn"] and summary["rounds"] == 179


def test_a_recording_that_is_wrong_in_the_middle(excess: Path, policy: Path, tmp_path: Path) -> None:
    """What came before was printed; then exit code 1, with file and line, and no traceback."""
    lines = excess.read_text().splitlines()
    lines[len(lines) // 2] = '{"line": "round", "number": "x"}'
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join(lines) + "\n")
    found = gpusteward("replay", broken, "--config", policy)
    assert found.returncode == 1
    assert f"{broken}:{len(lines) // 2 + 1}:" in found.stderr and "Traceback" not in found.stderr
    assert "grace" in found.stdout


def test_whoever_has_read_enough_ends_it_quietly(excess: Path, policy: Path) -> None:
    """`| head -1`: no traceback, exit code 0."""
    pipe = f'"{commands.COMMAND}" replay "{excess}" --config "{policy}" --json | head -1; echo "${{PIPESTATUS[0]}}"'
    found = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, timeout=PATIENCE, check=False)
    first, code = found.stdout.splitlines()
    assert (json.loads(first)["round"], code, found.stderr) == (1, "0", "")


@pytest.mark.parametrize("form", ["", "--json", "--set policy.grace=40s", "--set policy.grace=40s --json"])
def test_an_output_that_cannot_be_written(excess: Path, policy: Path, form: str) -> None:
    """A full disk is exit code 1, and says why. No output at all is no error."""
    line = f'gpusteward replay "$1" --config "$2" {form}'
    assert "cause: No space left on device" in complaint("replay", shell(f"{line} > /dev/full", excess, policy))
    closed = shell(f"{line} >&-", excess, policy)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_wrong_usage() -> None:
    """Without a file, and with an unknown flag: exit code 2."""
    assert gpusteward("replay").returncode == 2
    assert gpusteward("replay", "x", "--kill").returncode == 2
