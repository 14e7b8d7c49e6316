"""What a machine lacks is said loudly: a skip for developers, a failure in CI; and how it is put right."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cluster import build, install, requirements

PROGRAM = "#!/bin/sh\n"


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which nothing is; the folder can be given programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(requirements, "SBIN", str(folder))
    return folder


def put(folder: Path, name: str, script: str) -> None:
    """A program made of shell lines."""
    (folder / name).write_text(PROGRAM + script)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("ci", "outcome"), [("", {"skipped": 1}), ("true", {"errors": 1})])
def test_a_lacking_machine_skips_and_fails_in_ci(
    pytester: pytest.Pytester, bare_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: dict[str, int]
) -> None:
    """Without etcd and Go, tests that want a cluster are skipped with all reasons; with CI=true they fail."""
    pytester.makepyfile(
        "from cluster.fixtures import api_server\n\ndef test_one(api_server):\n    raise AssertionError\n"
    )
    for name, value in {"CI": ci, "HOME": str(bare_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}.items():
        monkeypatch.setenv(name, value)
    done = pytester.runpytest_inprocess("-rs", "-p", "no:cacheprovider")
    done.assert_outcomes(**outcome)
    words = " ".join(done.stdout.str().split())
    for reason in (
        "no cluster for tests on this machine",
        "etcd is missing (Debian's etcd-server)",
        "go is not installed",
    ):
        assert reason in words


def test_each_lacking_program_is_named_with_its_package(bare_path: Path) -> None:
    """All that a node needs is listed at once, with Debian's package for each and one command that installs them."""
    found = "\n".join(requirements.missing(node=True))
    for need in requirements.NEEDS:
        if not need.program.startswith("/"):
            assert f"{need.program} is missing (Debian's {need.package})" in found
    assert "cluster.install" in found


def test_assets_replace_what_they_hold(bare_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With KUBEBUILDER_ASSETS, as envtest sets it, Go and etcd are not asked for where the folder has the programs."""
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        put(bare_path, name, "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(bare_path))
    assert requirements.missing(node=False) == []
    assert build.program("kube-apiserver") == bare_path / "kube-apiserver"
    with pytest.raises(build.BuildError, match="go is not installed"):
        build.program("kubelet")


def test_an_old_go_is_told_what_to_become(bare_path: Path) -> None:
    """What is built asks for Go 1.26: the message says which version was found, and which is wanted."""
    put(bare_path, "go", "echo go1.25.13")
    assert (build.go_problem() or "").startswith("go1.25.13 is too old. Go 1.26 or newer")
    put(bare_path, "go", "echo go1.26.0")
    assert build.go_problem() is None


def test_a_dynamic_busybox_is_not_enough() -> None:
    """An image has nothing but the program: one that asks for a loader is not static, and this Python shows it."""
    assert not requirements.is_static(Path(sys.executable).resolve())


def installing(bare_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package manager that notes what it was asked; its notes."""
    notes = bare_path / "notes"
    put(bare_path, "apt-get", f'echo "apt-get $*" >> {notes}\n')
    put(bare_path, "sudo", '"$@"\n')
    put(bare_path, "install", f'echo "policy" >> {notes}\n')
    put(bare_path, "rm", f'echo "no policy" >> {notes}\n')
    monkeypatch.setattr(install, "POLICY", bare_path / "policy-rc.d")
    monkeypatch.setattr(install, "CONTAINER_MARKS", ())
    monkeypatch.delenv("container", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return notes


def test_packages_are_not_installed_without_a_yes(bare_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is neither CI nor a container, and with no person to ask, nothing is installed."""
    notes = installing(bare_path, monkeypatch)
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert install.main() == 0, "the tests go on, and skip what they cannot do"
    assert not notes.exists()


def test_ci_installs_what_is_missing_and_starts_no_service(bare_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CI=true missing packages are installed unasked, under a policy that starts no service, and is taken back."""
    notes = installing(bare_path, monkeypatch)
    monkeypatch.setenv("CI", "true")
    assert install.main() == 0
    policy, update, command, taken_back = notes.read_text().splitlines()
    assert (policy, update, taken_back) == ("policy", "apt-get update --quiet", "no policy")
    assert {"etcd-server", "containerd", "runc", "iproute2", "prometheus", "chromium", "apparmor", "buildah"} <= set(
        command.split()
    )


def test_nothing_is_installed_where_nothing_is_missing(
    bare_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that has all is left alone, in CI too."""
    notes = installing(bare_path, monkeypatch)
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(install, "NEEDS", ())
    monkeypatch.setattr(install, "PROMETHEUS", ())
    monkeypatch.setattr(install, "BROWSER", ())
    monkeypatch.setattr(install, "APPARMOR", ())
    monkeypatch.setattr(install, "RELEASE", ())
    monkeypatch.setattr(install, "READER", ())
    monkeypatch.setattr(install, "GUEST", ())
    assert install.main() == 0
    assert "all packages" in capsys.readouterr().out
    assert not notes.exists()
