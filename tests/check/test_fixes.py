"""Each check that did not pass says what to do about it, whatever the answer was."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.base.problem import Problem
from exporter.check import cluster, node, remedies, settings
from exporter.check.cluster import NodeObject
from exporter.check.lines import Failed, Line, Verdict
from exporter.check.node import CgroupView, PidDomain
from exporter.check.settings import Address
from exporter.devices import DevicesSample
from exporter.kube.allocations import AllocationsView
from exporter.kube.pod_resources import KubeletError
from exporter.kube.rights import RIGHTS
from exporter.model import Fault, Inventory

ROOT = Path(__file__).parents[2]
BARE = Failed("it does not work")
"""An answer of a probe that knows nothing better."""
STATUSES = (0, 400, 401, 403, 404, 429, 500, 503)
REASONS = ("", "Unreachable", "Timeout", "Untrusted", "NotConfigured", "Invalid", "Dropped")
STRANGE = Fault("devices", "never_seen", "something new")
DOUBT = Problem("something new")
MISSING = dict.fromkeys(RIGHTS, False)
BAD: dict[Callable[..., Line], tuple[tuple[Any, ...], ...]] = {
    cluster.kubelet: ((BARE,), (AllocationsView(api="v1alpha1"),), (AllocationsView(allocatable=None),)),
    cluster.api_server: tuple((Failed("refused", status),) for status in STATUSES),
    cluster.rights: (
        (None,),
        (MISSING,),
        (MISSING, "enforce"),
        *((Failed("refused", status),) for status in STATUSES),
    ),
    cluster.node_name: (
        ("n1", None),
        ("n1", NodeObject("b1", "b2")),
        *(("n1", Failed("refused", status)) for status in STATUSES),
    ),
    cluster.log_links: (("/var/log/containers", BARE), ("/var/log/containers", None)),
    cluster.names: (("file", BARE), ("auto", None), ("file", Inventory(faults=(STRANGE,)))),
    node.driver: ((BARE,), (DevicesSample({}, (), ()),), (DevicesSample({}, (), (STRANGE,)),)),
    node.recording: ((BARE,),),
    node.pid_domain: ((BARE,), (PidDomain("/proc", DOUBT, DOUBT),), (PidDomain("/proc", DOUBT, None),)),
    node.cgroups: ((BARE,), (CgroupView("", None),), (CgroupView("", None, (), (STRANGE,)),)),
    settings.refused_config: (("a key is wrong",),),
    settings.web_address: ((BARE,), (Address(":1", "in use"),)),
    settings.web_config: (("web.yaml", BARE),),
}
"""Each function that judges an answer, and answers that are not good."""


@pytest.mark.parametrize("judge", BAD, ids=lambda judge: judge.__qualname__)
def test_what_did_not_pass_has_a_message_and_a_fix(judge: Callable[..., Line]) -> None:
    """Each bad answer, also one of which nothing more is known."""
    for answer in BAD[judge]:
        line = judge(*answer)
        assert line.verdict is not Verdict.OK, answer
        assert line.message and line.fix, answer


def test_no_judgement_is_left_out() -> None:
    """A new check is listed above; `config` and `vendors` judge nothing that can be bad."""
    judges = {
        function
        for module in (cluster, node, settings)
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and function.__annotations__.get("return") is Line
    }
    assert {each for each in judges if not each.__name__.startswith("_")} == BAD.keys() | {settings.config}


def test_each_refusal_of_the_api_server_has_its_own_fix() -> None:
    """Four ways not to reach one, and three kinds of refusals: no token, no right, and a server that fails."""
    unreached = {remedies.of_api(0, reason) for reason in REASONS}
    refused = {remedies.of_api(status) for status in STATUSES if status}
    assert (len(unreached), len(refused)) == (4, 3)
    assert unreached.isdisjoint(refused) and all(unreached | refused)


def test_each_fault_of_a_source_has_a_fix() -> None:
    """Each reason that devices, the node's files and a file of names can give is in the list of remedies."""
    given = {
        reason
        for folder in ("exporter/devices", "exporter/host")
        for file in (ROOT / folder).rglob("*.py")
        for reason in _reasons(ast.parse(file.read_text(encoding="utf-8")))
    }
    unlisted = {"unsupported", "nodes_unseen", "pid_domain_unproven"}  # absent figures; the last says its own fix
    assert {"driver_hung", "gpu_lost", "fdinfo_denied"} <= given
    assert given - remedies.FAULTS.keys() == unlisted
    assert all(remedies.FAULTS.values())


def _reasons(tree: ast.Module) -> Iterator[str]:
    for found in ast.walk(tree):
        match found:
            case ast.Call(func=ast.Name("Fault"), args=[_, ast.Constant(str() as reason), *_]):
                yield reason
            case ast.Assign(targets=[ast.Name("reason")], value=ast.Constant(str() as reason)):
                yield reason


@pytest.mark.parametrize("file", ["exporter/check", "enforcer/runtime/preflight.py"])
def test_no_line_is_written_without_a_fix(file: str) -> None:
    """Each line that may not pass has a fix, in both halves of the program."""
    path, calls = ROOT / file, 0
    for source in path.rglob("*.py") if path.is_dir() else (path,):
        for found in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            match found:
                case ast.Call(func=ast.Name("Line"), args=[_, ast.Attribute(attr="OK"), *_]):
                    calls += 1
                case ast.Call(func=ast.Name("Line"), args=args):
                    calls += 1
                    assert len(args) == 4, f"{source.name}:{found.lineno}"
    assert calls > 5


def test_the_kubelets_error_says_its_fix() -> None:
    """In the message of the fault, after what happened."""
    error = KubeletError("kubelet_away", "the kubelet is away", "start it")
    assert (str(error), error.fix) == ("the kubelet is away; fix: start it", "start it")
