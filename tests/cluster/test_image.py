"""
The daemon's image: what is in it, and that it runs as tightly shut as Kubernetes can shut a container.

In: the image of this checkout, read as an archive and run by the cluster's containerd. Law: nothing here asks a program
of the image but the daemon and its Python; there is no other.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster.bed import Bed
from cluster.client import Api, Object, until
from cluster.fixtures import require
from cluster.image import ROOT, archive
from cluster.manifests import pod
from cluster.requirements import missing_for_image
from scraped import series

pytestmark = pytest.mark.cluster

HOME = "opt/gpusteward"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SHUT: Object = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
IMPORT_ALL = """
import pkgutil, importlib, enforcer, exporter
for package in (enforcer, exporter):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__") and found.name != "exporter.top.drawing":  # which wants the extra `top`
            importlib.import_module(found.name)
print("all imported")
"""


@dataclass
class Contents:
    """The files of an image, by path without the leading slash, and its config."""

    config: dict[str, Any]
    members: dict[str, tarfile.TarInfo]
    digests: dict[str, str]
    """SHA-256 of what is below `HOME`."""


@pytest.fixture(scope="module")
def contents() -> Contents:
    """The image as its archive tells it."""
    require(missing_for_image())
    members: dict[str, tarfile.TarInfo] = {}
    digests: dict[str, str] = {}
    with tarfile.open(archive()) as outer:

        def read(name: str) -> Any:
            return json.load(outer.extractfile(name) or pytest.fail(name))

        (manifest,) = read("manifest.json")
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
                for member in inner:
                    path = member.name.removeprefix("./").rstrip("/")
                    assert not Path(path).name.startswith(".wh."), "a layer removes what another brought"
                    members[path] = member
                    if path.startswith(HOME) and member.isfile() and (file := inner.extractfile(member)):
                        digests[path] = hashlib.sha256(file.read()).hexdigest()
        return Contents(read(manifest["Config"])["config"], members, digests)


def of_the_checkout() -> Iterator[Path]:
    """Files of our two packages, from the top of the repository."""
    for package in ("exporter", "enforcer"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT)


def test_it_starts_the_daemon_and_says_what_it_is(contents: Contents) -> None:
    """Entry point `gpusteward`, by default `run`, as root; title, licence and version in the labels of OCI."""
    assert contents.config["Entrypoint"] == ["/opt/gpusteward/bin/gpusteward"]
    assert contents.config["Cmd"] == ["run"]
    assert not contents.config.get("User")
    said = {key.removeprefix("org.opencontainers.image."): text for key, text in contents.config["Labels"].items()}
    assert (said["title"], said["licenses"], said["version"]) == ("gpusteward", "Apache-2.0", VERSION)


def test_it_has_no_program_but_python_and_the_daemon(contents: Contents) -> None:
    """No shell, no package manager, no compiler, no pip, nothing to build with; and none of the extra `top`."""
    programs = {path for path in contents.members if re.match(r"(usr/|opt/gpusteward/)?s?bin/[^/]+$", path)}
    assert {re.sub(r"python3[.\d]*$", "python", Path(path).name) for path in programs} == {
        "python",
        "gpusteward",
        "gpusteward-exporter",
    }
    installed = {
        found[1].lower() for path in contents.members if (found := re.search(r"/([^/]+)-[^/-]+\.dist-info$", path))
    }
    assert {"gpusteward", "aiohttp", "bcrypt", "nvidia_ml_py"} <= installed
    assert not installed & {"pip", "setuptools", "wheel", "hatchling", "pytest", "rich"}
    assert not [path for path in contents.members if re.search(r"/(tests|kubernetes/.*/models/v1_\w+\.py)$", path)]


def test_nobody_but_root_can_change_it(contents: Contents) -> None:
    """All is root's, nothing but /tmp and devices can be written by others, and no program changes its user."""
    of_others = {path for path, member in contents.members.items() if (member.uid, member.gid) != (0, 0)}
    assert not {path for path in of_others if not path.startswith(("var/", "dev/", "usr/local"))}
    open_to_all = {
        path for path, member in contents.members.items() if member.mode & 0o022 and (member.isfile() or member.isdir())
    }
    assert {path for path in open_to_all if not path.startswith(("dev/", "var/"))} <= {"tmp"}
    assert not [path for path, member in contents.members.items() if member.isfile() and member.mode & 0o6000]


def test_all_files_of_our_packages_are_in_it(contents: Contents) -> None:
    """Each file of exporter and enforcer, data such as the catalogue and the node page too, byte by byte; no other."""
    (site,) = {path.rpartition("/")[0] for path in contents.members if path.endswith("site-packages/exporter")}
    wanted = {str(path): hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in of_the_checkout()}
    ours = {path.removeprefix(f"{site}/"): digest for path, digest in contents.digests.items()}
    found = {
        path: digest
        for path, digest in ours.items()
        if path.startswith(("exporter/", "enforcer/")) and "__pycache__" not in path
    }
    assert found == wanted
    assert {Path(path).suffix for path in found} >= {".py", ".yaml", ".html"}


async def ended(cluster: Bed, api: Api, namespace: str, name: str, **container: Any) -> tuple[int, str]:
    """Run the image once; its exit code and what it wrote."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(path, pod(name, shut(**container)))

    async def over() -> Object | None:
        status = (await api.get(f"{path}/{name}"))["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    (main,) = (await until(over, f"{name} to end"))["containerStatuses"]
    return int(main["state"]["terminated"]["exitCode"]), cluster.kubectl("-n", namespace, "logs", name)


def shut(**container: Any) -> Object:
    """What a pod with one container of the image says: nothing may be written, no capability is left."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "imagePullPolicy": "Never", "securityContext": SHUT, **container}],
    }


async def test_it_says_its_version(cluster: Bed, node_api: Api, namespace: str, image: str) -> None:
    """`gpusteward --version`, with a root that cannot be written to and without any capability."""
    code, said = await ended(cluster, node_api, namespace, "version", image=image, args=["--version"])
    assert (code, said) == (0, f"gpusteward {VERSION}\n")


async def test_every_module_is_imported_from_byte_code(cluster: Bed, node_api: Api, namespace: str, image: str) -> None:
    """All modules of ours can be imported without what the image leaves out, and no file is compiled for that."""
    command = ["/opt/gpusteward/bin/python3", "-v", "-c", IMPORT_ALL]
    code, said = await ended(cluster, node_api, namespace, "imports", image=image, command=command)
    assert code == 0 and "\nall imported\n" in said, said[-4000:]
    loaded = re.findall(r"^# code object from '?([^'\n]+)'?$", said, re.MULTILINE)
    compiled = [path for path in loaded if not path.endswith(".pyc")]
    assert not compiled, "compiled at the start"
    assert len([path for path in loaded if path.startswith("/opt/gpusteward/")]) > 500


async def test_it_observes_and_is_checked(cluster: Bed, node_api: Api, namespace: str, image: str) -> None:
    """`run` with simulated devices gets ready and answers /metrics; `gpusteward check` and `top` can be asked."""
    flags = ["run", "--devices=simulated", "--names.source=none"]
    probe = {"httpGet": {"path": "/readyz", "port": 9478}, "periodSeconds": 1}
    made = shut(image=image, args=flags, readinessProbe=probe)
    await node_api.create(f"/api/v1/namespaces/{namespace}/pods", pod("daemon", made))
    address = (await node_api.ready_pod(namespace, "daemon"))["status"]["podIP"]
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}:9478/metrics") as answer:
        page = await answer.text()
    assert series(page, "build_info", "version") == {(VERSION,): 1}
    assert len(series(page, "device_memory_used_bytes", "uuid", "gpu_instance")) > 1
    asked = ("gpusteward", "check", "--devices=simulated", "--names.source=none")
    said = cluster.kubectl("-n", namespace, "exec", "daemon", "--", *asked)
    assert re.search(r"^ok +driver ", said, re.MULTILINE) and "fail" not in said, said
    table = cluster.kubectl("-n", namespace, "exec", "daemon", "--", "gpusteward", "top", "--once")
    assert len(re.findall(r"^GPU \d  ", table, re.MULTILINE)) == 8, table
