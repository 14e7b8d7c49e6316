"""What a machine lacks is said, and is a failure only in CI, where no person would read it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.cgroupfs import below, hierarchies, make, remove
from containers.fixtures import need_containers
from containers.requirements import BINARIES, requirements


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without containerd: nothing in PATH. (What is in /usr/sbin is found all the same.)"""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare_machine")
def test_a_missing_binary_is_named_with_its_package() -> None:
    """Each thing that is missing is named, with the command that brings it."""
    assert "containerd: apt-get install containerd" in requirements()
    assert set(BINARIES.values()) <= {"containerd", "runc", "mount", "util-linux"}


@pytest.mark.usefixtures("bare_machine")
def test_on_a_laptop_the_tests_are_skipped_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CI=true a test that needs containers is skipped, with the reason."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install containerd"):
        need_containers()


@pytest.mark.usefixtures("bare_machine")
def test_in_ci_that_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CI=true the same is a failure, so that no test is lost in silence."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install containerd"):
        need_containers()


@pytest.fixture
def foreign_pod() -> Iterator[str]:
    """The cgroup of a pod that no bed made, below a kubepods folder of this test alone."""
    need_containers()
    kubepods = f"/gpusteward-test-{uuid.uuid4().hex}"
    root = hierarchies().kubelet[0]
    make(root, f"{kubepods}/burstable/pod{uuid.UUID(int=7)}")
    yield kubepods
    remove(below(root, kubepods))


@pytest.mark.containers
def test_the_pods_of_another_kubelet_are_seen(foreign_pod: str) -> None:
    """A kubelet at work below the same cgroup would end our pods as orphans: that is a missing requirement."""
    assert requirements() == []
    assert [text for text in requirements(kubepods=foreign_pod) if "another kubelet" in text] == [
        f"sole use of {foreign_pod}: {foreign_pod}/burstable/pod{uuid.UUID(int=7)} is another kubelet's"
    ]
