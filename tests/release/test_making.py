"""
In which order a release is published, and what is left when a step fails.

In: programs that write down how they are called, in the place of buildah, helm and cosign. The real ones make a release
in tests/cluster/test_release.py.
"""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from tools.release import files, sbom
from tools.release.images import Store
from tools.release.making import Making
from tools.release.programs import ReleaseError
from tools.release.registry import Registry
from tools.release.signing import Signer
from tools.release.source import Source

DIGEST = "sha256:" + "a" * 64
HOME = "https://git.example/gpusteward"
CHANGES = "- New ([page](docs/a.md#b), [other](https://x.example/a), [here](#c))."
PROGRAM = """#!/bin/sh
echo "$(basename $0) $*" >> {log}
for word; do case $word in --digestfile=*|--output-signature=*|--outfile=*) printf {digest} > ${{word#*=}};; esac; done
case "$(basename $0) $*" in {fails}) exit 1;; esac
echo "Digest: {digest}" >&2
"""


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A checkout with the least that is needed."""
    root = tmp_path / "checkout"
    texts = {
        **dict.fromkeys(("requirements.lock", "alerts/a.yaml", "grafana/dashboards/a.json"), "a\n"),
        "pyproject.toml": f'[project.urls]\nRepository = "{HOME}"\n',
        "deploy/manifests/observe/a.yaml": "image: gpusteward:1.2.3\n",
        "deploy/profiles/a.json": "{}\n",
        "deploy/charts/gpusteward/Chart.yaml": "annotations:\n",
        "deploy/charts/gpusteward/values.yaml": 'image:\n  registry: ""\n  repository: gpusteward\n',
    }
    for name, text in texts.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Source(root, "1.2.3", "f" * 40, 1_700_000_000, CHANGES)


def made(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, *, fails: str, signed: bool) -> list[str]:
    """Make a release with programs that only note how they are called; these notes."""
    log, bin_, work = tmp_path / "log", tmp_path / "bin", tmp_path / "work"
    for folder in (bin_, work / "files", work / "image"):
        folder.mkdir(parents=True)
    for name in ("buildah", "helm", "cosign"):
        program = bin_ / name
        program.write_text(PROGRAM.format(log=log, digest=DIGEST, fails=f'*"{fails}"*' if fails else "-"))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(bin_), prepend=":")
    image = {"manifests": [{"digest": DIGEST, "platform": {"architecture": "amd64"}}]}
    (work / "image/index.json").write_text(json.dumps({"manifests": [{"digest": DIGEST}]}))
    (work / "image/blobs/sha256").mkdir(parents=True)
    (work / "image/blobs/sha256" / DIGEST.removeprefix("sha256:")).write_text(json.dumps(image))

    def written(name: str) -> Path:
        file = work / "files" / name
        file.write_text(name)
        return file

    monkeypatch.setattr(Store, "image", lambda *_, **__: None)
    monkeypatch.setattr(files, "wheel", lambda *_: written("wheel"))
    monkeypatch.setattr(files, "chart", lambda *_: written("chart"))
    monkeypatch.setattr(sbom, "python", lambda *given: given[-1].write_text("{}"))
    monkeypatch.setattr(sbom, "debian", lambda *given: given[-1].write_text("{}"))
    signer = Signer("cosign.key", plain=True) if signed else None
    lines: list[str] = []
    making = Making(
        source, Registry("127.0.0.1:1/team"), signer, work / "files", work, Store(work, source.date), lines.append
    )
    try:
        making.make()
    except ReleaseError:
        assert fails
    return [line for line in log.read_text().splitlines() if "rmi" not in line]


def test_the_names_that_people_use_come_last(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is signed under its digest before the chart is pushed; its version is the last thing of all."""
    calls = made(tmp_path, source, monkeypatch, fails="", signed=True)
    order = [
        "gpusteward:git-ffffffffffff", "cosign sign ", "helm push", f"charts/gpusteward@{DIGEST}", "cosign sign-blob",
        "gpusteward:1.2.3",
    ]  # fmt: skip
    places = [next(number for number, line in enumerate(calls) if step in line) for step in order]
    assert places == sorted(places) and places[-1] == len(calls) - 1


@pytest.mark.parametrize("fails", ["manifest push", "cosign sign", "attest", "push --plain-http", "sign-blob"])
def test_a_step_that_fails_leaves_no_version(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """No image has the version then, and before the image is signed there is no chart."""
    calls = made(tmp_path, source, monkeypatch, fails=fails, signed=True)
    assert not [line for line in calls if line.endswith("gpusteward:1.2.3")]
    if fails in ("manifest push", "cosign sign", "attest"):
        assert not [line for line in calls if line.startswith("helm")]


def test_without_a_key_nothing_is_signed_and_the_notes_say_so(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader takes such a release for a signed one."""
    calls = made(tmp_path, source, monkeypatch, fails="", signed=False)
    assert not [line for line in calls if line.startswith("cosign")]
    assert "This release has no signatures." in (tmp_path / "work/files/NOTES.md").read_text()


def test_the_notes_lead_to_the_pages_of_the_commit(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read on a release's page, where no link of the changelog leads to a file beside it."""
    made(tmp_path, source, monkeypatch, fails="", signed=True)
    notes = (tmp_path / "work/files/NOTES.md").read_text()
    assert f"- New ([page]({HOME}/blob/v1.2.3/docs/a.md#b), [other](https://x.example/a), [here](#c))." in notes
    verified = [line.split() for line in notes.splitlines() if line.startswith("cosign verify-attestation")]
    kinds = [(line[-2], line[-1].rpartition("/")[2].partition("@")[0]) for line in verified]
    assert kinds == [("slsaprovenance1", "gpusteward")] * 2 + [("cyclonedx", "gpusteward")]
    assert f"- linux/amd64: `{DIGEST}`" in notes


def test_the_folder_of_the_pages_commands_names_the_image(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deploy/ is there as in a checkout: chart and manifests run what was published."""
    made(tmp_path, source, monkeypatch, fails="", signed=False)
    with tarfile.open(tmp_path / "work/files/gpusteward-1.2.3-deploy.tar.gz") as archive:
        texts = {one.name: file.read().decode() for one in archive if (file := archive.extractfile(one))}
    image = "127.0.0.1:1/team/gpusteward"
    assert texts["deploy/manifests/observe/a.yaml"] == f"image: {image}:1.2.3@{DIGEST}\n"
    assert f"gpusteward.io/image: {image}@{DIGEST}" in texts["deploy/charts/gpusteward/Chart.yaml"]
    assert {name.split("/")[1] for name in texts} == {"manifests", "profiles", "charts"}
