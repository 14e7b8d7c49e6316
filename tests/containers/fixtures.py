"""Fixtures of the container bed; name this module in the `pytest_plugins` of the top conftest to have them.

In: a machine with root and Debian's containerd. Out: one containerd a test run, and pods that end with their test.
Law: on a laptop that lacks something, the tests are skipped and say what; in CI (`CI=true`) that is a failure.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from containers.containerd import Containerd
from containers.pods import Bed, Pod
from containers.requirements import requirements
from containers.specs import ContainerSpec, PidMode, Qos
from patience import PATIENCE


class RunPod(Protocol):
    """`Bed.run_pod`, whose pods are stopped when the test ends. Namespace and name have defaults."""

    def __call__(
        self,
        *containers: ContainerSpec | str,
        namespace: str = "team-a",
        name: str = "job",
        qos: Qos | str = Qos.BURSTABLE,
        uid: str | None = None,
        pid_mode: PidMode = PidMode.CONTAINER,
    ) -> Pod: ...


def wait_until(condition: Callable[[], bool], *, what: str, within_s: float = PATIENCE) -> None:
    """Return as soon as the condition holds; fail, saying `what` was awaited, when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s} s: {what}")
        time.sleep(0.01)


def need_containers() -> None:
    """Skip or, in CI, fail the test when this machine cannot run the bed."""
    if missing := requirements():
        reason = "real containers need " + "; ".join(missing)
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """A containerd for the whole run, in a folder of its own."""
    need_containers()
    with Containerd(tmp_path_factory.mktemp("containerd")) as running:
        yield running


@pytest.fixture(scope="session")
def bed(containerd: Containerd) -> Bed:
    """A node's runtime with the busybox image in it."""
    return Bed(containerd)


@pytest.fixture
def run_pod(bed: Bed) -> Iterator[RunPod]:
    """Start pods that end with the test."""
    with ExitStack() as stack:

        def run(
            *containers: ContainerSpec | str,
            namespace: str = "team-a",
            name: str = "job",
            qos: Qos | str = Qos.BURSTABLE,
            uid: str | None = None,
            pid_mode: PidMode = PidMode.CONTAINER,
        ) -> Pod:
            pod = bed.run_pod(namespace, name, containers or ["main"], qos=qos, uid=uid, pid_mode=pid_mode)
            stack.callback(pod.stop)
            return pod

        yield run
