"""
A reader who goes through the pages on a bed, and pastes each command as it is written.

In: a bed with the image under the names that the pages use; what each command should print. Out: what went wrong. Law:
what a reader has to replace is in `REPLACED`, and nothing else of a command is changed.

What the reader's cluster has besides: pods in team-a, one within its limit and three over theirs, the kinds of objects
that operators bring, and the files that a page names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import yaml

from cluster.bed import NODE_NAME, WORKLOAD, Bed
from cluster.client import Object
from cluster.terminal import Done, Terminal
from documented import ROOT, Command, blocks, commands, over, values_of
from patience import PATIENCE

T = TypeVar("T")

REPLACED = {
    "REGISTRY": "gpusteward.test",
    "gpu-1": NODE_NAME,
    "NODE": NODE_NAME,
    "NAMESPACE": "team-a",
    "NS": "team-a",
    "BREAKER": "blast_radius",
    "POD": "llm",
}
"""What the pages ask a reader to replace -> by what."""
WITHOUT_RIGHTS = "docs/runbooks/GPUNamespaceRightsMissing.md"
"""The page about a namespace without the role; team-a has it."""
EVICTED = ("docs/operate.md", "docs/runbooks/GPUMemoryOverLimit.md")
"""Pages whose POD is over its limit: the one that was evicted first."""
FIRST = ["docs/test-cluster.md", "README.md", "docs/deploy.md", "docs/first-hour.md", "docs/operate.md"]
"""Pages that install, and the one that enforces. All others find the node as it leaves it."""
SOONER = "helm upgrade gpusteward deploy/charts/gpusteward -n gpusteward -f values.yaml"
"""With the short times of docs/operate.md, and a short round, of which docs/recording.md wants sixty."""
VALUES = "values.yaml"
"""The reader's file, into which each block of a page goes that begins with its name."""
STAYS = re.compile(r"port-forward [^&]*$|gpusteward top( --json.*)?$")
"""What runs until Ctrl-C."""
ANEW = re.compile(r"^kubectl (create namespace gpusteward$|apply -k)")
"""A block with such a command finds a cluster without gpusteward."""
KINDS = {
    "podmonitors": ("monitoring.coreos.com", "PodMonitor"),
    "prometheusrules": ("monitoring.coreos.com", "PrometheusRule"),
    "pytorchjobs": ("kubeflow.org", "PyTorchJob"),
}
POD = "# the container's name is in the key"
"""In the pod of docs/sharing-systems.md that declares a limit for time-slicing."""


@dataclass
class Reader:
    """
    One reader.

    Attributes:
        printed: what a command looks like -> what it prints, sooner or later.
        status: what a command looks like -> its exit code, where that is not 0.
        played: the pages that were gone through, and what went wrong.

    """

    bed: Bed
    terminal: Terminal
    printed: Mapping[str, str]
    status: Mapping[str, int]
    played: dict[str, str] = field(default_factory=dict)

    def play(self, page: str) -> str:
        """Go through a page, and before it through the one that it builds on; what went wrong."""
        if page not in self.played:
            before = FIRST[: FIRST.index(page)] if page in FIRST else FIRST
            wrong = self.play(before[-1]) if before else self._prepare()
            if len(before) == 1:
                self._populate()
            self.played[page] = wrong or self._through(page)
        return self.played[page]

    def uninstall(self) -> str:
        """Remove gpusteward as docs/operate.md says, or the plain manifests; what went wrong."""
        if self.bed.helm("list", "-n", "gpusteward", "-q").strip():
            for one in commands():
                if _uninstalls(one) and (wrong := self._paste(one)):
                    return wrong
        manifests = str(ROOT / "deploy/manifests/observe")
        self.bed.kubectl("delete", "-k", manifests, "--ignore-not-found", "--wait")
        self.bed.kubectl("-n", "team-a", "delete", "rolebindings", "--all")
        return ""

    def _through(self, page: str) -> str:
        ours: list[Command] = []
        if page == FIRST[-1]:
            self._add(_yaml(page, "# short.yaml"), {"config": {"sampling": {"interval": "1s"}}})
            ours = [Command(page, None, SOONER)]
        ours += [one for one in commands() if one.page == page and one.reason is None and not _uninstalls(one)]
        try:
            read = 0
            for number, lines in groupby(ours, key=lambda one: one.block):
                block = list(lines)
                if number is not None:
                    self._add(*(one for at, one in values_of(ROOT / page) if read <= at < number))
                    read = number
                if not any(one.of_a_cluster for one in block):
                    continue
                wrong = self.uninstall() if any(ANEW.search(one.text) for one in block) else ""
                if wrong := wrong or next(filter(None, map(self._paste, block)), ""):
                    return f"{wrong}\n{self._daemons()}"
        finally:
            self.terminal.close()
        self.bed.kubectl("-n", "gpusteward", "rollout", "status", "ds/gpusteward", f"--timeout={PATIENCE:.0f}s")
        return ""

    def _paste(self, command: Command) -> str:
        if "port-forward" in command.text:
            self.terminal.interrupt()  # there is one port
        if "--previous" in command.text:
            self._restart()
        text, code, printed = self._replaced(command), _of(self.status, command) or 0, _of(self.printed, command)
        wanted = None if STAYS.search(command.text) else code

        def good(done: Done) -> bool:
            return done.code == wanted and re.search(printed or "", done.printed, re.MULTILINE) is not None

        done = self.terminal.run(text, good, again=printed is not None)
        if good(done):
            return ""
        return f"{command.page}: {text}\nexit code {done.code}, not {wanted}, or not {printed!r}:\n{done.printed}"

    def _add(self, *values: Object) -> None:
        """Write more into the reader's values."""
        file = self.terminal.folder / VALUES
        there: Object = yaml.safe_load(file.read_text()) if file.exists() else {}
        for one in values:
            there = over(there, one)
        text = yaml.safe_dump(there)
        file.write_text(text.replace("REGISTRY", REPLACED["REGISTRY"]))

    def _replaced(self, command: Command) -> str:
        by = dict(REPLACED)
        if command.page == WITHOUT_RIGHTS:
            by["NAMESPACE"] = "team-b"
        if command.page in EVICTED and re.search(r"\bPOD\b", command.text):
            asked = ("--field-selector=reason=GPUMemoryLimitEvicted", "-o=jsonpath={.items[0].involvedObject.name}")
            by["POD"] = self.bed.kubectl("-n", "team-a", "get", "events", *asked)
        text = re.sub(rf"\b({'|'.join(by)})\b", lambda found: by[found[1]], command.text)
        text = text.replace("/var/lib/gpusteward/", f"{self.bed.folder}/gpusteward/")  # the bed's node has it there
        if "0a1b…" in text:
            lines = map(json.loads, (self.bed.folder / "gpusteward/journal").read_text().splitlines())
            text = text.replace("0a1b…", next(one["decision"] for one in lines if one["record"] == "intent"))
        if text == "gpusteward top":  # on the node itself, which has no network of its own here
            text = f"GPUSTEWARD_URL=http://{self._daemon('{.status.podIP}')}:9478 {text}"
        return text

    def _restart(self) -> None:
        """
        End the daemon as a driver upgrade does; the kubelet starts its container anew, and keeps the log.

        Each minute the kubelet removes all but one of a container's dead ones. One that is created and not yet started
        counts as dead (evictableContainers in kuberuntime_gc.go). If the log was lost so, the daemon is ended again.
        """
        kept = ""
        while not kept:
            self._await("condition=Ready")
            uid, count = self._daemon("{.metadata.uid} {.status.containerStatuses[0].restartCount}").split()
            for folder in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    ours = uid in (folder / "cgroup").read_text()
                    if ours and b"gpusteward\0run" in (folder / "cmdline").read_bytes():
                        os.kill(int(folder.name), signal.SIGTERM)
            self._await(f"jsonpath={{.status.containerStatuses[0].restartCount}}={int(count) + 1}")
            kept = self._daemon("{.status.containerStatuses[0].lastState.terminated}")

    def _await(self, condition: str) -> None:
        within = f"--timeout={PATIENCE:.0f}s"
        self.bed.kubectl("-n", "gpusteward", "wait", f"--for={condition}", "pods", "--all", within)

    def _daemon(self, path: str) -> str:
        """Read something of the daemon's pod, of which there is one."""
        return self.bed.kubectl("-n", "gpusteward", "get", "pods", f"-o=jsonpath={{range .items[*]}}{path}{{end}}")

    def _daemons(self) -> str:
        shown = self.bed.kubectl("-n", "gpusteward", "describe", "pods")
        with suppress(subprocess.CalledProcessError):  # a container that has not started has no log
            selector = "--selector=app.kubernetes.io/name=gpusteward"
            shown += self.bed.kubectl("-n", "gpusteward", "logs", selector, "--tail=40")
        return shown

    def _prepare(self) -> str:
        """Have what the pages take for granted."""
        deployment = _yaml("docs/first-hour.md", "# deployment.yaml")
        _use(deployment["spec"]["template"]["spec"])
        train = {**deployment, "metadata": {"name": "train", "namespace": "default"}}
        job = {"pytorchReplicaSpecs": {"Worker": {"template": deployment["spec"]["template"]}}}
        files = {
            "deployment.yaml": deployment,
            "pod.yaml": _yaml("docs/sharing-systems.md", POD),
            "short.yaml": _yaml("docs/operate.md", "# short.yaml"),
            "my-chart/Chart.yaml": {"apiVersion": "v2", "name": "my-chart", "version": "0.1.0"},
            "my-chart/templates/train.yaml": train,
        }
        for name, content in files.items():
            file = self.terminal.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml.safe_dump(content))
        (self.terminal.folder / "deploy").symlink_to(ROOT / "deploy")
        self._apply(*_kinds())
        self.bed.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self._apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}, "spec": job})
        return ""

    def _populate(self) -> None:
        """Have the pods of the pages after the first one, which brings its own; and a node without a journal."""
        self.uninstall()
        for one in (self.bed.folder / "gpusteward").iterdir():  # the folder itself is a mount of the node
            one.unlink() if one.is_file() else shutil.rmtree(one)
        self._apply(*_workloads())
        self.bed.kubectl("-n", "team-a", "wait", "--for=condition=Ready", "pods", "--all", f"--timeout={PATIENCE:.0f}s")

    def _apply(self, *things: Object) -> None:
        self.bed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(things))


def _of(table: Mapping[str, T], command: Command) -> T | None:
    return next((value for pattern, value in table.items() if re.search(pattern, command.text)), None)


def _uninstalls(command: Command) -> bool:
    return command.text in ("helm uninstall gpusteward -n gpusteward", "kubectl delete namespace gpusteward")


def _yaml(page: str, sign: str) -> Object:
    """The YAML block of a page that has this text."""
    (text,) = (text for kind, text in blocks(ROOT / page) if kind == "yaml" and sign in text)
    return dict(yaml.safe_load(text))


def _workloads() -> Iterator[Object]:
    """Two namespaces; the pod of docs/sharing-systems.md, and three more whose limit is smaller than what they use."""
    yield from ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}} for one in ("team-a", "team-b"))
    for name in ("llm", "greedy-1", "greedy-2", "greedy-3"):
        pod = _yaml("docs/sharing-systems.md", POD)
        pod["metadata"]["name"] = name
        if name != "llm":
            pod["metadata"]["annotations"] = dict.fromkeys(pod["metadata"]["annotations"], "1Gi")
        _use(pod["spec"], resources={"limits": {"nvidia.com/gpu.shared": 1}})  # there are four
        yield pod


def _use(spec: Object, **more: object) -> None:
    """Let the container hold memory of its GPU."""
    (container,) = spec["containers"]
    does = {"WORKLOAD": "alloc visible 3GiB", "CUDA_CACHE_DISABLE": "1"}
    env = [{"name": name, "value": value} for name, value in does.items()]
    container |= {"image": WORKLOAD, "command": ["/bin/workload"], "env": env, **more}
    spec["terminationGracePeriodSeconds"] = 1


def _kinds() -> Iterator[Object]:
    """Definitions of the kinds that operators bring, with any content."""
    for plural, (group, kind) in KINDS.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "kind": kind}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
        }
