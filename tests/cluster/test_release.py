"""
A release, from one command to a pod: made, signed, pulled from a real registry, upgraded to, rolled back, removed.

In: this checkout in a clone, distribution's registry, cosign, helm, the cluster. Law: nothing is imported into the
node; its containerd pulls, as on every node.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import build
from cluster.bed import Bed
from cluster.client import Object
from cluster.fixtures import require
from cluster.image import DATE, ROOT
from cluster.installed import Release, objects, released, same_objects, values
from cluster.registry import Loopback, registry
from cluster.releasing import OWNER, PASSWORD, VERSION, Released, cloned, make_release, run
from cluster.requirements import missing_for_image, missing_for_release
from cluster.stage import Stage
from scraped import series
from tools.release.images import TO_BUILD, Store, native
from tools.release.notes import RELATIVE
from tools.release.source import section

pytestmark = pytest.mark.cluster

OLD = "7d90aba"
"""A commit of version 0.1.0, from which clusters are upgraded."""
AARCH64 = 183  # EM_AARCH64 in elf(5)


@pytest.fixture(scope="module")
def made(cluster: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """A release in a registry."""
    require([*missing_for_image(), *missing_for_release()])
    folder = tmp_path_factory.mktemp("release")
    (build.cache() / "image").mkdir(parents=True, exist_ok=True)
    with registry(cluster, folder) as loopback:
        cosign("generate-key-pair", cwd=folder)
        clone = cloned(folder)
        printed = make_release(clone, f"{loopback.address}/{OWNER}", folder)
        yield Released(loopback, clone, folder, printed)


@pytest.fixture
async def release(cluster: Bed, stage: Stage, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart."""
    async with released(cluster, stage.api, tmp_path) as found:
        yield found


def cosign(*words: str, cwd: Path | None = None) -> str:
    """Run cosign; what it prints."""
    return run(str(build.program("cosign")), *words, cwd=cwd, env=PASSWORD)


def pulled(bed: Bed, **more: object) -> Object:
    """Values that leave the image to the chart, and let the kubelet ask the registry."""
    return {**values(bed, "of/the:chart", {}, **more), "image": {"pullPolicy": "Always"}}


def test_it_says_what_it_makes(made: Released) -> None:
    """Each file has a line and a right checksum; the notes are the changelog's. Nothing is left in the clone."""
    for file in made.folder.iterdir():
        assert f"file: {file.name} (" in made.printed or file.name == "cosign.pub"
    kinds = ("provenance.json", "deploy.tar.gz", "rules.tar.gz", "dashboards.tar.gz", "sbom-debian-arm64.cdx.json")
    assert {f"gpusteward-{VERSION}-{kind}" for kind in kinds} <= {file.name for file in made.folder.iterdir()}
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=made.folder)
    changes = section((made.clone / "CHANGELOG.md").read_text(), VERSION)
    notes, home = (made.folder / "NOTES.md").read_text(), f"https://git.example/gpusteward/blob/v{VERSION}"
    assert changes and RELATIVE.sub(f"]({home}/", changes) in notes and f"]({home}/docs/" in notes
    assert made.registry.tags(f"{OWNER}/charts/gpusteward") >= {VERSION}
    assert {one.name for one in (made.clone / "dist").iterdir()} == {VERSION}


def test_each_part_is_signed(made: Released, tmp_path: Path) -> None:
    """The public key verifies image, chart, each platform's image, the checksums, provenance and lists of packages."""
    key = (f"--key={made.folder / 'cosign.pub'}", "--insecure-ignore-tlog")
    image, chart = made.named("gpusteward"), made.named("charts/gpusteward")
    index = made.registry.manifest(f"{OWNER}/gpusteward", made.digest("gpusteward"))
    platforms = {one["platform"]["architecture"]: one["digest"] for one in index["manifests"]}
    assert set(platforms) == {"amd64", "arm64"}
    for name in (image, chart, *(f"{made.name}/gpusteward@{digest}" for digest in platforms.values())):
        cosign("verify", *key, name)
    for name in (image, chart):
        cosign("verify-attestation", *key, "--type=slsaprovenance1", name)
    for digest in platforms.values():
        listed = cosign("verify-attestation", *key, "--type=cyclonedx", f"{made.name}/gpusteward@{digest}")
        assert len(listed.splitlines()) == 2, "Python's and Debian's packages"
    sums = made.folder / "SHA256SUMS"
    cosign("verify-blob", *key, f"--signature={sums}.sig", str(sums))
    cosign("generate-key-pair", cwd=tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cosign("verify", f"--key={tmp_path / 'cosign.pub'}", "--insecure-ignore-tlog", image)
    assert "invalid signature" in refused.value.stderr


@pytest.mark.parametrize("platform", ["amd64", "arm64"])
def test_the_lists_name_what_is_in_the_image(made: Released, platform: str) -> None:
    """Python's packages with their versions, and Debian's for the platform; nothing of this machine."""

    def listed(kind: str) -> dict[str, str]:
        file = made.folder / f"gpusteward-{VERSION}-sbom-{kind}-{platform}.cdx.json"
        return {one["name"]: one.get("purl", "") for one in json.loads(file.read_text())["components"]}

    assert {"aiohttp", "bcrypt", "nvidia-ml-py", "gpusteward"} <= set(listed("python"))
    assert not {"pip", "pytest", "setuptools"} & set(listed("python"))
    assert f"arch={platform}" in listed("debian")["libc6"]


def test_the_same_commit_gives_the_same_image(made: Released, tmp_path: Path) -> None:
    """Built once more, of Debian's packages fetched anew, the image has the digest that was published."""
    cached, store = Store(build.cache() / "image", DATE), Store(tmp_path, DATE)
    builder = cached.base(TO_BUILD, native())  # nothing of it is in the image
    cached.buildah("push", builder, f"docker-archive:{tmp_path / 'builder'}:{builder}")
    store.buildah("pull", f"docker-archive:{tmp_path / 'builder'}")
    revision = run("git", "rev-parse", "HEAD", cwd=made.clone).strip()
    labels = {"VERSION": VERSION, "REVISION": revision, "SOURCE": "https://git.example/gpusteward"}
    name = "localhost/again"
    store.image(made.clone, native(), name, **labels)
    store.buildah("push", f"--digestfile={tmp_path / 'digest'}", name, f"oci:{tmp_path / 'again'}")
    index = made.registry.manifest(f"{OWNER}/gpusteward", VERSION)
    digests = {one["platform"]["architecture"]: one["digest"] for one in index["manifests"]}
    assert (tmp_path / "digest").read_text() == digests[native()]


def test_the_image_for_arm64_is_one(made: Released, tmp_path: Path) -> None:
    """Each program and library of it is for aarch64, and an emulator starts the daemon's command line."""
    root = tmp_path / "root"
    index = made.registry.manifest(f"{OWNER}/gpusteward", VERSION)
    (digest,) = (one["digest"] for one in index["manifests"] if one["platform"]["architecture"] == "arm64")
    made.registry.unpack(f"{OWNER}/gpusteward", digest, root)
    machines = [machine for path in root.rglob("*") if (machine := elf_machine(path)) is not None]
    assert len(machines) > 50 and set(machines) == {AARCH64}
    shutil.copy(shutil.which("qemu-aarch64-static") or "", root / "qemu")
    started = ("chroot", str(root), "/qemu", "/opt/gpusteward/bin/python", "/opt/gpusteward/bin/gpusteward")
    assert run(*started, "--version") == f"gpusteward {VERSION}\n"
    assert "fail" not in run(*started, "check", "--devices=simulated", "--names.source=none")


def elf_machine(path: Path) -> int | None:
    """For which processor a file is; None where it is no program or library."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        header = file.read(20)
    return int(struct.unpack_from("<H", header, 18)[0]) if header.startswith(b"\x7fELF") else None


def test_a_version_is_published_once(made: Released) -> None:
    """A second release of the version is refused before anything is built, and changes nothing."""
    before = made.registry.tags(f"{OWNER}/gpusteward")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make_release(made.clone, made.name, made.keys)
    assert "is published already" in refused.value.stderr
    assert made.registry.tags(f"{OWNER}/gpusteward") == before


async def test_the_node_pulls_what_was_published(made: Released, release: Release, stage: Stage) -> None:
    """`helm install oci://…@digest`: the kubelet pulls by digest, the daemon is ready and `check` is content."""
    before = await objects(stage.api)
    chart = made.named("charts/gpusteward")
    release = replace(release, chart=(f"oci://{chart}", "--plain-http"))
    release.helm("install", values=pulled(stage.bed))
    (status,) = (await release.pod())["status"]["containerStatuses"]
    assert status["imageID"] == made.named("gpusteward")
    commit = run("git", "rev-parse", "HEAD", cwd=made.clone).strip()
    assert series(await release.page(), "build_info", "version", "revision") == {(VERSION, commit): 1}
    checked = release.bed.kubectl("-n", release.namespace, "exec", f"ds/{release.account}", "--", "gpusteward", "check")
    assert "ok    driver" in checked
    release.helm("uninstall")
    await same_objects(stage.api, before)


async def test_the_first_version_is_upgraded_and_comes_back(
    made: Released, release: Release, stage: Stage, tmp_path: Path
) -> None:
    """Chart and image of an older commit, upgraded to the release and rolled back; uninstalled, nothing is left."""
    old = older(tmp_path, made.registry)
    before = await objects(stage.api)
    release = replace(release, chart=(str(old / "deploy/charts/gpusteward"),))
    image = {"registry": made.name, "repository": "gpusteward", "tag": "0.1.0"}
    release.helm("install", values={**pulled(stage.bed), "image": image})
    first = await release.pod()
    assert series(await release.page(), "build_info", "version") == {("0.1.0",): 1}

    release = replace(release, chart=(f"oci://{made.named('charts/gpusteward')}", "--plain-http"))
    release.helm("upgrade", values=pulled(stage.bed))
    second = await release.pod(besides=first["metadata"]["uid"])
    assert series(await release.page(), "build_info", "version") == {(VERSION,): 1}

    release.helm("rollback", "1")
    await release.pod(besides=second["metadata"]["uid"])
    assert series(await release.page(), "build_info", "version") == {("0.1.0",): 1}
    release.helm("uninstall")
    await same_objects(stage.api, before)


def older(folder: Path, to: Loopback) -> Path:
    """The checkout of the commit `OLD`, whose image is in the registry then."""
    found = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"this checkout has no commit {OLD}: `git fetch --unshallow`")
    checkout = folder / "old"
    checkout.mkdir()
    subprocess.run(["tar", "--extract", "--directory", str(checkout)], input=found.stdout, check=True)
    store = Store(build.cache() / "image", DATE)
    name = f"localhost/old-{folder.name}"
    store.image(checkout, native(), name, VERSION="0.1.0")
    store.buildah("push", "--tls-verify=false", name, f"docker://{to.address}/{OWNER}/gpusteward:0.1.0")
    store.buildah("rmi", name)
    return checkout
