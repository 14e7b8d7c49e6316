"""
The Helm chart, packed and rendered by Helm.

In: variants (deploy/charts/gpusteward/ci) or values. Out: objects as they would be applied, or Helm's words about
what is wrong. Law: what is rendered is the package that users get. Release and namespace are called gpusteward, unless
a test says otherwise.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import plain_yaml
from cluster import build

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "charts" / "gpusteward"
RELEASE = "gpusteward"
OLDEST, NEWEST = "1.25.0", "1.37.0"
EVICTS_FROM = "1.30.0"
"""The first Kubernetes with ValidatingAdmissionPolicy, and with a container's appArmorProfile."""
VARIANTS = tuple(sorted(one.name.removesuffix("-values.yaml") for one in (CHART / "ci").glob("*-values.yaml")))
PLATFORMS = tuple(sorted(f"platforms/{one.stem}" for one in (CHART / "platforms").glob("*.yaml")))
NOT_ON_OLD_ONES = {"evict", "kill", "granted", "drm"}
"""Variants that Kubernetes before 1.30 cannot have."""


_TEMPORARY = tempfile.TemporaryDirectory(prefix="gpusteward-chart-")
"""Where the package lies; removed when the tests end."""


class RefusedError(Exception):
    """Helm did not render it; the message is its own."""


def variant(name: str) -> Path:
    """The values of a variant or a platform, as a file."""
    return CHART / f"{name}.yaml" if name in PLATFORMS else CHART / "ci" / f"{name}-values.yaml"


def text(
    *files: Path,
    release: str = RELEASE,
    namespace: str = RELEASE,
    chart: Path | None = None,
    kubernetes: str = NEWEST,
    tests: bool = False,
) -> str:
    """What Helm prints; `tests`: with what `helm test` makes. Raises RefusedError, and BuildError without a Helm."""
    command: list[str | Path] = [
        build.program("helm"),
        "template",
        release,
        chart or packed(),
        f"--namespace={namespace}",
    ]
    flags = [f"--kube-version={kubernetes}", *(f"--values={one}" for one in files)]
    flags += [] if tests else ["--skip-tests"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    return str(done.stdout)


@cache
def rendered(name: str, kubernetes: str = NEWEST, *, tests: bool = False) -> Rendered:
    """A variant or a platform; `tests`: with what `helm test` makes."""
    return Rendered(objects(text(variant(name), kubernetes=kubernetes, tests=tests)))


def written(folder: Path, values: Mapping[str, Any]) -> Path:
    """Write values into a file."""
    path = folder / "values.json"
    path.write_text(json.dumps(values))
    return path


def notes(folder: Path, values: Mapping[str, Any]) -> str:
    """What a person reads after `helm install` with these values; without a cluster Helm prints objects alone."""
    copy = unpacked(folder / "noted")
    (copy / "templates" / "NOTES.txt").rename(copy / "NOTES.txt")
    as_object = 'kind: Notes\ntext: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n'
    (copy / "templates" / "notes.yaml").write_text(as_object)
    made = Rendered(objects(text(written(folder, values), chart=copy)))
    return str(made.only("Notes")["text"])


@cache
def packed() -> Path:
    """The chart as it is published, packed once. Raises RefusedError."""
    folder = Path(_TEMPORARY.name)
    command: list[str | Path] = [build.program("helm"), "package", CHART, f"--destination={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(done.stderr)
    (path,) = folder.glob("*.tgz")
    return path


def unpacked(folder: Path) -> Path:
    """A copy of the package that a test may change."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(packed()) as archive:
        archive.extractall(folder, filter="data")
    return folder / CHART.name


def lint() -> None:
    """Have Helm look at chart and variants; a warning is an error. Raises RefusedError."""
    command: list[str | Path] = [build.program("helm"), "lint", CHART, "--strict", f"--kube-version={NEWEST}"]
    for name in (*VARIANTS, *PLATFORMS):
        done = subprocess.run([*command, f"--values={variant(name)}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RefusedError(f"{name}: {done.stdout}{done.stderr}")


def objects(rendering: str) -> tuple[Object, ...]:
    """Read the objects of a rendering."""
    return tuple(filter(None, plain_yaml.load_all(rendering)))


@dataclass(frozen=True, slots=True)
class Rendered:
    """Objects, and what a test asks of them."""

    objects: tuple[Object, ...]

    def kinds(self) -> list[str]:
        """Each object's kind, in order of the alphabet."""
        return sorted(one["kind"] for one in self.objects)

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def only(self, kind: str) -> Object:
        """The one object of a kind."""
        (one,) = self.of(kind)
        return one

    @property
    def pod(self) -> Object:
        """The pod's spec."""
        spec: Object = self.only("DaemonSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        """Its one container."""
        (one,) = self.pod["containers"]
        return dict(one)

    @property
    def config(self) -> str:
        """The daemon's config file."""
        (one,) = (one for one in self.of("ConfigMap") if "config.yaml" in one["data"])
        return str(one["data"]["config.yaml"])

    def granted(self) -> set[tuple[str, str, str]]:
        """(where, verb, resource.group) of all that is bound; where: `*` or a namespace."""
        roles = {one["metadata"]["name"]: one["rules"] for one in self.of("ClusterRole")}
        found: set[tuple[str, str, str]] = set()
        for binding in (*self.of("ClusterRoleBinding"), *self.of("RoleBinding")):
            where = binding["metadata"].get("namespace", "*")
            for rule in roles[binding["roleRef"]["name"]]:
                found |= {(where, verb, named) for verb in rule["verbs"] for named in _resources(rule)}
        return found


def _resources(rule: Object) -> Iterable[str]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield f"{resource}.{group}" if group else resource
