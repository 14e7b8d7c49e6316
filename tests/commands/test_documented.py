"""
The commands of docs/, as they are written there.

In: code blocks (sh, console) and code in sentences. Out: what needs no cluster runs; the rest has a reason. Law: a
command that is neither run nor listed fails; the words of each `gpusteward` command are taken by its own parser.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import commands
from enforcer.cli import parser
from exporter.config import parse_arguments

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
RECORDING = ROOT / "tests" / "compat" / "fixtures" / "0.1" / "node.jsonl.gz"

NOT_RUN = {
    r"\b(kubectl|helm) ": "needs a cluster (or a chart of the reader's own)",
    r"^(docker|make) ": "builds, tests or starts something large; the target is looked for below",
    r"^(nvidia-smi|nvidia-ctk|ps) ?": "wants a node with a driver",
    r"(python -m cluster|pytest tests/cluster)": "starts a cluster",
    r"^gpusteward check ": "judges the node on which it runs",
    r"^gpusteward record ": "records the node on which it runs, for ten minutes",
    r"^(gpusteward top|gpusteward explain .*--url|curl )": "asks a daemon that runs",
    r"^(gpusteward run|gpusteward-exporter) ": "runs until it is stopped",
    r"gpusteward completion ": "changes the reader's shell; test_completion.py asks a bash",
    r"^jq .*/var/lib/gpusteward/": "reads the journal of a node",
}
"""What a command looks like that is not run here -> why."""

FILES = {
    "pod.yaml": """
        {apiVersion: v1, kind: Pod, metadata: {name: llm, namespace: team-a, annotations: {
          nvidia.com/container.server.gpu-memory.limit: 2Gi}}, spec: {containers: [{name: server, resources: {limits: {
          nvidia.com/gpu: "1", nvidia.com/gpumem: "4096", nvidia.com/gpucores: "50"}}}]}}""",
    "deployment.yaml": """
        {apiVersion: apps/v1, kind: Deployment, metadata: {name: llm, namespace: team-a}, spec: {template: {spec: {
          containers: [{name: server, resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "2048"}}}]}}}}""",
    "node.yaml": """
        {apiVersion: v1, kind: Node, metadata: {name: gpu-1, labels: {
          nvidia.com/gpu.count: "1", nvidia.com/gpu.memory: "81920"}}, status: {capacity: {nvidia.com/gpu: "1"}}}""",
    "policy.yaml": "policy: {mode: dry-run}",
}
"""The files that the pages speak of; `node.jsonl.gz` besides."""


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    """Each code block of a kind: its page, its text."""
    for page in PAGES:
        for text in re.findall(rf"^ *```{kind}\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield page.relative_to(ROOT).as_posix(), text


def written() -> Iterator[tuple[str, str]]:
    """Each command of a code block: its page, its words without a comment."""
    for page, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            if command := re.sub(r"(^|\s+)# .*", "", line).strip():
                yield page, command
    for page, text in blocks("console"):
        yield from (
            (page, line[2:].strip()) for line in map(str.strip, text.splitlines()) if line.startswith(("$ ", "# "))
        )


def reason(command: str) -> str | None:
    """Say why a command is not run; None where it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, f"{command} ")), None)


RUN = sorted({command for _, command in written() if reason(command) is None})


def in_code() -> Iterator[tuple[str, str]]:
    """Each command of a code block, and all code in sentences."""
    yield from written()
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        yield from ((page.relative_to(ROOT).as_posix(), code) for code in re.findall(r"`([^`\n]+)`", text))


def test_what_is_run_is_what_needs_no_cluster() -> None:
    """Pods of a file, recordings: nothing that is new on a page runs unseen."""
    assert [" ".join(command.split()[:2]) for command in RUN] == ["gpusteward explain"] * 2 + ["gpusteward replay"] * 3


@pytest.mark.daemon
@pytest.mark.parametrize("command", RUN)
def test_a_command_runs_as_it_is_written(command: str, tmp_path: Path) -> None:
    """Exit code 0, something on standard output, nothing on standard error."""
    shutil.copy(RECORDING, tmp_path / "node.jsonl.gz")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def said(code: str) -> Iterator[list[str]]:
    """The words of each of our commands in a line of code, on a node, in a pod or in a pipe."""
    for exporter, words in re.findall(r"(?:^|-- |[&|$;] )gpusteward(-exporter)? ([^|>&#;…]*)", code):
        yield [f"gpusteward{exporter}", *shlex.split(words.replace("BREAKER", "journal"))]


@pytest.mark.parametrize("command", sorted({command for _, command in written() if list(said(command))}))
def test_a_command_of_a_block_is_complete(command: str) -> None:
    """Its parser takes all of its words."""
    for program, *words in said(command):
        if program == "gpusteward":
            parser().parse_args(words)
        else:
            parse_arguments(words, {})


def test_a_command_in_a_sentence_exists() -> None:
    """With each flag that stands beside it; the sentence need not name all that the command asks for."""
    known = {name: set(one._option_string_actions) for name, one in commands().items()}
    wrong, seen = [], 0
    for page, code in in_code():
        for program, *words in said(code):
            name, flags = (
                words[0] if words else "",
                {word.partition("=")[0] for word in words if word[:1] == "-" != word},
            )
            seen += 1
            if program == "gpusteward" and (name not in known or not flags <= known[name]):
                wrong.append(f"{page}: {code}")
    assert wrong == [] and seen


def test_each_module_and_target_is_there() -> None:
    """`python -m MODULE` finds its module from the top of the repository with the variables that it is written with."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong, seen = [], 0
    for page, code in in_code():
        for before, module in re.findall(r"(PYTHONPATH=tests )?\S*\bpython -m ([a-z_.]+)", code):
            place = (ROOT / "tests" if before else ROOT).joinpath(*module.split("."))
            seen += 1
            if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists()):
                wrong.append(f"{page}: {code}")
        wrong += [f"{page}: {code}" for target in re.findall(r"^make ([a-z-]+)", code) if target not in targets]
    assert wrong == [] and seen
