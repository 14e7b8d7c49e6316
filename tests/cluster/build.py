"""Programs that no package has in the version we want: built from Go modules pinned by go.sum, kept between runs.

In: the folders below `tools/`, one Go module each. Out: paths of programs.
Law: what is built is named by what it is built from (module files, Go's version), so a stale program cannot be met.

`KUBEBUILDER_ASSETS` (the convention of envtest): programs found in that folder are used, and not built.
`python -m cluster.build [NAME …]` builds what `make test` wants, or those that are named, and prints where they are.
`kubelet@1.37` is the kubelet of another version than the default; `versions.py` lists them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster.versions import DEFAULT, VERSIONS

MODULES = {
    "kube-apiserver": "kubernetes",
    "kube-controller-manager": "kubernetes",
    "kube-scheduler": "kubernetes",
    "kubectl": "kubernetes",
    "kubelet": "kubernetes",
    "helm": "helm",
    "kubeconform": "kubeconform",
    "dashboard-linter": "dashboard-linter",
    "actionlint": "actionlint",
    "cosign": "cosign",
    "registry": "registry",
    "jsonnet": "jsonnet",
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "nvidia-cdi-hook": "nvidia-toolkit",
    "nvidia-container-runtime": "nvidia-toolkit",
    "nvidia-ctk-installer": "nvidia-toolkit",
    "kube-state-metrics": "kube-state-metrics",
    "adapter": "prometheus-adapter",
    "operator": "prometheus-operator",
    "runsc": "gvisor",
    "shim": "gvisor",
}
QUICKLY = {
    module: ["-gcflags=all=-N -l"]
    for module in ("dashboard-linter", "prometheus-adapter", "prometheus-operator", "prometheus-2.35")
} | {"prometheus-3.16": ["-gcflags=all=-N -l", "-tags=remove_all_sd"]}  # without clouds, of which no test asks
"""Of a program that does little here the build is what it costs: without optimizing, a quarter less."""
SELDOM = {"gvisor"}
"""What is built only where it is named: `make test` does without."""
TOOLS = Path(__file__).parent / "tools"
WITH_C = {"nvidia-toolkit"}
"""What is not built without a C compiler: it binds NVIDIA's libraries. All else needs none, nor this machine's libc."""
GO_AT_LEAST = (1, 26)  # NVIDIA's toolkit 1.20.1 asks for it


class BuildError(Exception):
    """The build cannot be done, or failed; the message says what to do or what Go said."""


def program(name: str, version: str = DEFAULT) -> Path:
    """
    Path of a program of `MODULES`, built now if that was not done before. Raises BuildError.

    `version`: of Kubernetes, a name of VERSIONS; without meaning for other programs. One kubectl serves all versions.
    """
    given = assets(name)
    module = MODULES[name]
    if module == "kubernetes" and name != "kubectl":
        module = VERSIONS[version].module
    return given or _module(module) / name


def of_module(module: str, name: str) -> Path:
    """Path of a program of the module below `tools/`, built now if that was not done before. Raises BuildError."""
    return _module(module) / name


def assets(name: str) -> Path | None:
    """The program in the folder that KUBEBUILDER_ASSETS names, if it is there."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    path = shutil.which(name, path=folder) if folder else None
    return Path(path) if path else None


def cache() -> Path:
    """Our folder for what survives between runs; it may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusteward"


def go_problem() -> str | None:
    """Why Go cannot be used here, with what to do about it; None when it can."""
    wanted = ".".join(map(str, GO_AT_LEAST))
    advice = f"Go {wanted} or newer builds Kubernetes: https://go.dev/dl"
    if shutil.which("go") is None:
        return f"go is not installed. {advice}"
    version = _go_version()
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found and tuple(map(int, found.groups())) < GO_AT_LEAST:
        return f"{version} is too old. {advice}"
    return None


def kubernetes_version(version: str = DEFAULT) -> str:
    """The pinned patch of a version of VERSIONS, for instance "v1.34.10"."""
    return _pinned_kubernetes(VERSIONS[version].module)


def _pinned_kubernetes(module: str) -> str:
    found = re.search(r"\bk8s\.io/kubernetes (v\S+)", (TOOLS / module / "go.mod").read_text())
    if found is None:
        raise BuildError(f"tools/{module}/go.mod requires no k8s.io/kubernetes")
    return found.group(1)


def _module(module: str) -> Path:
    problem = go_problem()
    if problem:
        raise BuildError(problem)
    source = TOOLS / module
    key = hashlib.sha256(_go_version().encode())
    for file in ("go.mod", "go.sum"):
        key.update((source / file).read_bytes())
    folder = cache() / "tools" / f"{module}-{key.hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{module}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one builds, the other waits for it
        if not folder.exists():
            _build(source, folder)
    return folder


def _build(source: Path, folder: Path) -> None:
    print(
        f"building {source.name} (once; Kubernetes takes five minutes or more on two cores) ...",
        file=sys.stderr,
        flush=True,
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{source.name}-") as unfinished:
        done = subprocess.run(
            ["go", "build", "-C", source, "-mod=readonly", "-buildvcs=false", "-trimpath",
             *QUICKLY.get(source.name, []),
             "-ldflags", " ".join(_linker_flags(source.name)), "-o", f"{unfinished}/", "tool"],
            env={**os.environ, "CGO_ENABLED": str(int(source.name in WITH_C))},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(f"go build in {source} failed:\n{done.stderr[-4000:]}")
        Path(unfinished).chmod(0o755)
        shutil.move(unfinished, folder)
        Path(unfinished).mkdir()  # for TemporaryDirectory to remove
    print(f"built {source.name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _linker_flags(module: str) -> list[str]:
    flags = ["-s", "-w"]
    if module in {one.module for one in VERSIONS.values()}:
        version = _pinned_kubernetes(module)  # else they call themselves v0.0.0-master, and clients complain
        major, minor, _ = version.removeprefix("v").split(".")
        variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{name}={value}" for name, value in variables.items()]
    if module == "helm":  # as helm's own Makefile; else `helm template` and `helm lint` take Kubernetes for 1.20
        wanted = (TOOLS / module / "go.mod").read_text()
        major, minor = re.findall(r"\bk8s\.io/client-go v(\d+)\.(\d+)", wanted)[0]
        kubernetes = {"k8sVersionMajor": int(major) + 1, "k8sVersionMinor": minor}
        for package in ("pkg/chart/common", "pkg/chart/v2/lint/rules", "internal/chart/v3/lint/rules"):
            flags += [f"-X helm.sh/helm/v4/{package}.{name}={value}" for name, value in kubernetes.items()]
    return flags


def _go_version() -> str:
    return subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    try:
        for each in sys.argv[1:] or [name for name, module in MODULES.items() if module not in SELDOM]:
            name, _, version = each.partition("@")
            print(program(name, version or DEFAULT))
    except BuildError as error:
        sys.exit(str(error))
