"""
What a running `gpusteward run` has imported: every megabyte of it is held on each GPU node, for as long as it is up.

Source of the names: Python's own list of imports (`-X importtime`), from the start to the first round. The megabytes
are in docs/performance.md.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from daemon.running import Daemon, until
from driver.node import FakeNode, gpus
from enforcer.cli import COMMANDS
from sources.kube_api import kubeconfig

pytestmark = pytest.mark.daemon

OF_OTHERS = {
    *(f"enforcer.commands.{name}" for name in COMMANDS if name != "run"),
    *("enforcer.commands.prometheus", "exporter.advise", "exporter.check", "exporter.history", "exporter.report"),
    *("exporter.recording", "exporter.simulated", "exporter.top", "shtab"),
}
"""What other commands and other settings need."""
PYTHONS = {"csv", "difflib", "importlib.metadata", "importlib.resources", "zipfile"}
"""Of Python's library, what only mistakes, installers and other commands need: 1 MB."""
LIBRARY = {
    *("kubernetes", "pydantic", "requests", "urllib3", "oauthlib", "requests_oauthlib", "websocket", "dateutil"),
    "aiohttp_retry",
}
"""The Kubernetes library, and what it alone imports."""
MODELS = {"kubernetes.client.models.v1_pod", "kubernetes.aio.client.models.v1_pod"}
"""Of its models, the one that any use of them begins with."""
CLUSTER = {
    *("enforcer.runtime.with_kubernetes", "enforcer.runtime.arming", "enforcer.actions.kube_writer"),
    *("exporter.kube.client", "exporter.kube.pods", "google.protobuf", "grpclib", "h2"),
}
"""What is needed where an API server and a kubelet are."""
CONTROL = {"enforcer.policy.decide", "exporter.devices.nvml.library", "exporter.web.app"}
"""What every daemon needs; so the list is not of some other program."""


def imported(node: FakeNode, *flags: str, needed: set[str] = CONTROL, **variables: str) -> set[str]:
    """
    Start the program on a node with a GPU; the names of all modules that it imported up to its first snapshot.

    What is `needed` may come after that, where a source answers late.
    """
    node.write(gpus(1))
    command = sys.executable, "-X", "importtime", Path(sys.executable).with_name("gpusteward"), "run"
    flags = ("--devices=nvml", "--log.format=json", *flags)
    with Daemon(*flags, env=node.environment() | variables, command=command) as daemon:

        def found() -> set[str]:
            # Where two threads import at once, Python's own time of a module can be negative.
            return set(re.findall(r"^import time: +-?\d+ \| +\d+ \| +(\S+)$", daemon.log, re.MULTILINE))

        daemon.snapshot()
        until(lambda: found() >= needed, f"the import of {needed}", daemon)
        assert daemon.stop()[0] == 0
        return found()


@pytest.mark.parametrize("mode", ["observe", "dry-run", "enforce"])
def test_without_kubernetes_it_imports_nothing_of_kubernetes(fake_node: FakeNode, mode: str) -> None:
    """Neither clients nor actions, in any mode; and nothing that only another command or setting needs."""
    found = imported(fake_node, "--names.source=none", f"--mode={mode}")
    assert not found & (OF_OTHERS | PYTHONS | LIBRARY | MODELS | CLUSTER)


def test_in_a_pod_it_does_without_the_kubernetes_library(fake_node: FakeNode) -> None:
    """Its own clients are there, and neither the library nor what that would import."""
    found = imported(
        fake_node, needed=CLUSTER | CONTROL, KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT="9"
    )
    assert not found & (OF_OTHERS | PYTHONS | LIBRARY | MODELS)


def test_a_kubeconfig_is_read_by_the_library_without_its_models(fake_node: FakeNode, tmp_path: Path) -> None:
    """The library reads kubeconfigs. None of its models is imported for that: they would take 36 MB more."""
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:9")
    found = imported(
        fake_node, "--names.source=kubernetes", f"--names.kubeconfig={file}", needed=CLUSTER | LIBRARY | CONTROL
    )
    assert not found & (OF_OTHERS | MODELS)


@pytest.mark.parametrize("name", sorted(OF_OTHERS | PYTHONS | MODELS))
def test_what_must_not_be_imported_is_there(name: str) -> None:
    """A module that was renamed would be missed by no one: each name of these lists is one that could be imported."""
    assert find_spec(name) is not None
