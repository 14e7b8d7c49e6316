"""
What stands in deploy/ as plain manifests: the chart's own words.

In: deploy/manifests, deploy/exporter, deploy/enforcer. Out: nothing. Law: a difference from the chart is an error here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster import build
from deploy import plain
from deploy.chart import DEPLOY, Object, Rendered, objects

ROLES = {
    "exporter/rbac.yaml": "exporter",
    "enforcer/rbac.yaml": "warn",
    "enforcer/rbac-evict.yaml": "evict",
    "enforcer/admission.yaml": "evict",
}
"""Files for those who look for the rights alone, and the variant that has the same."""


def committed(name: str) -> Rendered:
    """A variant as it is in the repository."""
    return Rendered(objects((plain.FOLDER / name / "gpusteward.yaml").read_text()))


@pytest.mark.charts
@pytest.mark.usefixtures("helm")
def test_the_manifests_are_what_the_chart_renders() -> None:
    """`make manifests` would change nothing, and leaves nothing behind."""
    there = {str(one.relative_to(plain.FOLDER)): one.read_text() for one in plain.FOLDER.rglob("*") if one.is_file()}
    assert there == plain.files(), "run `make manifests`, and look at the difference"


@pytest.mark.parametrize("file", ROLES)
def test_the_files_of_rights_say_what_the_chart_says(file: str) -> None:
    """Each object of deploy/exporter and deploy/enforcer is in the variant's manifest, word for word."""
    rendered = {_key(one): _content(one) for one in committed(ROLES[file]).objects}
    by_hand = {_key(one): _content(one) for one in objects((DEPLOY / file).read_text())}
    assert by_hand and by_hand.items() <= rendered.items()


@pytest.mark.parametrize("name", plain.VARIANTS)
def test_a_manifest_says_its_mode(name: str) -> None:
    """The mode is that of the folder's name: what enforces is called so."""
    modes = {"evict": "enforce", "kill": "enforce", "mig": "observe"}
    assert [f"  mode: {modes.get(name, name)}"] == [
        line for line in committed(name).config.splitlines() if line.startswith("  mode: ")
    ] or name == "exporter"
    assert ("policy:" in committed(name).config) is (name != "exporter")


@pytest.mark.parametrize("name", plain.VARIANTS)
def test_whatever_happens_these_rights_are_not_asked_for(name: str) -> None:
    """No secrets, no deletes, no exec, nothing of nodes/*; no change of pods but the eviction. No CRI socket."""
    made = committed(name)
    changing = {
        (where != "*", verb, what)
        for where, verb, what in made.granted()
        if verb not in {"get", "list", "watch"} and what != "events.events.k8s.io"
    }
    assert changing == ({(True, "create", "pods/eviction")} if name in {"evict", "kill"} else set())
    named = {what for _, _, what in made.granted()}
    assert not {"secrets", "pods/exec", "nodes/proxy", "pods/log", "*"} & named
    sockets = [one["hostPath"]["path"] for one in made.pod["volumes"] if "hostPath" in one]
    assert not [one for one in sockets if "containerd" in one or "crio" in one or "docker" in one or one == "/"]


@pytest.mark.charts
@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("name", plain.VARIANTS)
def test_kustomize_takes_them(name: str, tmp_path: Path) -> None:
    """An overlay of one's own changes image and mode without a copy of the rest."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (tmp_path / "base").symlink_to(plain.FOLDER / name)
    (overlay / "kustomization.yaml").write_text(
        "resources: [../base]\nimages: [{name: gpusteward, newName: registry.example.com/gpusteward, newTag: '1'}]\n"
    )
    command: list[str | Path] = [build.program("kubectl"), "kustomize", overlay]
    made = Rendered(objects(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert made.kinds() == committed(name).kinds()
    assert made.container["image"] == "registry.example.com/gpusteward:1"


def _key(one: Object) -> tuple[str, str, str]:
    meta = one["metadata"]
    return one["kind"], meta.get("namespace", ""), meta["name"]


def _content(one: Object) -> Object:
    told = {"metadata", "automountServiceAccountToken"}  # labels, and a default of the account that no pod leaves open
    return {key: value for key, value in one.items() if key not in told}
