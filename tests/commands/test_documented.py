"""
The commands of the pages, as they are written there: those that need no cluster run here.

In: `documented`. Out: exit codes. Law: a command that is run neither here nor on a cluster, and has no reason there,
fails. The parser of each `gpusteward` command accepts its words.
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
from documented import ROOT, in_sentences, written
from enforcer.cli import parser
from exporter.config import parse_arguments
from patience import PATIENCE

RECORDING = ROOT / "tests" / "compat" / "fixtures" / "0.1" / "node.jsonl.gz"

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


RUN = sorted({one.text for one in written() if one.reason is None and not one.of_a_cluster})


def in_code() -> Iterator[tuple[str, str]]:
    """Each command of a code block, and all code in sentences."""
    yield from ((one.page, one.text) for one in (*written(), *in_sentences()))


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
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def said(code: str) -> Iterator[list[str]]:
    """The words of each of our commands in a line of code, on a node, in a pod or in a pipe."""
    for exporter, words in re.findall(r"(?:^|-- |[&|$;] )gpusteward(-exporter)? ([^|>&#;…]*)", code):
        yield [f"gpusteward{exporter}", *shlex.split(words.replace("BREAKER", "journal"))]


@pytest.mark.parametrize("command", sorted({command for one in written() if list(said(command := one.text))}))
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
