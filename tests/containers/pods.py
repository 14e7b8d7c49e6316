"""Pods without Kubernetes: what a kubelet asks of the runtime and of the cgroup file system, by hand.

In: a running Containerd, names, images. Out: real pods with the kubelet's labels, cgroups and restarts.
Law: what a test reads off a pod (pid, id, state) is asked of the runtime at that moment, never remembered.
Pods are on the host's network, so no CNI is needed. cgroupfs driver: /kubepods/<qos>/pod<uid>/<container id>.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from containers import cri_pb2 as pb
from containers import images
from containers.cgroupfs import below, members
from containers.containerd import BedError, Containerd
from containers.specs import ContainerSpec, Executed, PidMode, Qos


class Bed:
    """A node's runtime. `kubepods` is the cgroup below which a kubelet would keep its pods."""

    def __init__(self, containerd: Containerd, *, kubepods: str = "/kubepods") -> None:
        self.containerd = containerd
        self.cri = containerd.cri
        self.kubepods = kubepods
        containerd.import_image(images.busybox_image(containerd.home / "busybox.tar"), images.BUSYBOX)

    def run_pod(
        self,
        namespace: str,
        name: str,
        containers: Sequence[ContainerSpec | str],
        *,
        qos: Qos | str = Qos.BURSTABLE,
        uid: str | None = None,
        pid_mode: PidMode = PidMode.CONTAINER,
        labels: Mapping[str, str] | None = None,
    ) -> Pod:
        """Make the pod's cgroup and sandbox, start its containers in order. A str is a busybox container of that name.

        `uid` None is a fresh one; a static pod's has 32 hex digits. Raises CriError. Half a pod is removed.
        """
        uid = uid or str(uuid.uuid4())
        tier = "" if Qos(qos) is Qos.GUARANTEED else f"/{Qos(qos)}"
        cgroup = f"{self.kubepods}{tier}/pod{uid}"
        logs = self.containerd.home / "logs" / f"{namespace}_{name}_{uid}"
        logs.mkdir(parents=True, exist_ok=True)
        namespaces = pb.NamespaceOption(network=pb.NODE, pid=pid_mode.value, ipc=pb.POD)
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, namespace=namespace, uid=uid),
            log_directory=str(logs),
            labels={
                **(labels or {}),
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": namespace,
                "io.kubernetes.pod.uid": uid,
            },
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=cgroup,
                security_context=pb.LinuxSandboxSecurityContext(
                    namespace_options=namespaces,
                    # The kubelet's rule: the sandbox is as privileged as its most privileged container.
                    privileged=any(isinstance(spec, ContainerSpec) and spec.privileged for spec in containers),
                ),
            ),
        )
        pod = Pod(self, config)
        try:
            pod.start()
            for spec in containers:
                pod.add(ContainerSpec(spec) if isinstance(spec, str) else spec)
        except BaseException:
            pod.stop()
            raise
        return pod

    def inventory(self) -> list[dict[str, str]]:
        """All running containers (no sandboxes): namespace, pod, pod_uid, container, container_id."""
        return sorted(
            (
                {
                    "namespace": found.labels["io.kubernetes.pod.namespace"],
                    "pod": found.labels["io.kubernetes.pod.name"],
                    "pod_uid": found.labels["io.kubernetes.pod.uid"],
                    "container": found.labels["io.kubernetes.container.name"],
                    "container_id": found.id,
                }
                for found in self.cri.list_containers(running=True)
            ),
            key=lambda entry: tuple(entry.values()),
        )

    def write_inventory(self, file: Path) -> Path:
        """Write `inventory()` as JSON (which is YAML too) in one step: a reader sees the old list or the new one."""
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(json.dumps(self.inventory(), indent=1) + "\n")
        fresh.replace(file)
        return file


class Pod:
    """A running pod: `containers` by name; `cgroup` is its path in each hierarchy."""

    def __init__(self, bed: Bed, config: pb.PodSandboxConfig) -> None:
        self.bed = bed
        self.config = config
        self.sandbox_id: str | None = None  # None: not started, or stopped
        self.containers: dict[str, Container] = {}

    @property
    def namespace(self) -> str:
        return self.config.metadata.namespace

    @property
    def name(self) -> str:
        return self.config.metadata.name

    @property
    def uid(self) -> str:
        return self.config.metadata.uid

    @property
    def cgroup(self) -> str:
        return self.config.linux.cgroup_parent

    def start(self) -> None:
        self.bed.containerd.cgroups.make(self.cgroup)
        self.sandbox_id = self.bed.cri.run_pod_sandbox(self.config)

    def add(self, spec: ContainerSpec) -> Container:
        """Start one more container in this pod."""
        self.containers[spec.name] = Container(self, spec)
        return self.containers[spec.name]

    def stop(self) -> None:
        """End the pod at once, with its sandbox and its cgroup. A second call does nothing."""
        if self.sandbox_id is not None:
            self.bed.cri.stop_pod_sandbox(self.sandbox_id)
            self.bed.cri.remove_pod_sandbox(self.sandbox_id)
            self.sandbox_id = None
        self.bed.containerd.cgroups.remove(self.cgroup)


class Container:
    """A container of a pod through its restarts: the name stays, the id changes."""

    def __init__(self, pod: Pod, spec: ContainerSpec) -> None:
        self.pod = pod
        self.spec = spec
        self.attempt = 0  # how often it was restarted
        self._earlier: str | None = None
        self.id = self._start()

    @property
    def status(self) -> pb.ContainerStatus:
        return self.pod.bed.cri.container_status(self.id).status

    @property
    def running(self) -> bool:
        return self.status.state == pb.CONTAINER_RUNNING

    @property
    def pid(self) -> int:
        """Host pid of the first process. Raises BedError, with the end of its output, when it does not run."""
        answer = self.pod.bed.cri.container_status(self.id)
        pid = int(json.loads(answer.info["info"])["pid"])
        if answer.status.state != pb.CONTAINER_RUNNING or not pid:
            raise BedError(
                f"container {self.spec.name} does not run ({answer.status.exit_code}): {self.logs()[-1000:]}"
            )
        return pid

    @property
    def cgroup(self) -> str:
        """Its path in each of the kubelet's hierarchies."""
        return f"{self.pod.cgroup}/{self.id}"

    @property
    def pids(self) -> set[int]:
        """Host pids of all its processes, those of nested cgroups and of execs included."""
        return members(below(self.pod.bed.containerd.cgroups.mounts.kubelet[0], self.cgroup))

    def restart(self, *, grace_s: int = 0) -> str:
        """End it and start it anew in the same sandbox, as the kubelet does; the new id.

        As there, the last dead container stays in the runtime's list, earlier ones are removed.
        """
        cri = self.pod.bed.cri
        cri.stop_container(self.id, grace_s=grace_s)
        if self._earlier is not None:
            cri.remove_container(self._earlier)
        self._earlier = self.id
        self.attempt += 1
        self.id = self._start()
        return self.id

    def stop(self, *, grace_s: int = 0) -> None:
        """End it and leave the pod. A stopped one stays in the runtime's list, as a dead container."""
        self.pod.bed.cri.stop_container(self.id, grace_s=grace_s)

    def exec(self, *command: str, timeout_s: int = 10) -> Executed:
        """Run a command in it and wait for its end. Raises CriError after `timeout_s`."""
        answer = self.pod.bed.cri.exec_sync(self.id, command, timeout_s=timeout_s)
        return Executed(answer.stdout.decode(), answer.stderr.decode(), answer.exit_code)

    def spawn(self, *command: str) -> int:
        """Start a process in it that outlives the exec; its host pid. Needs a shell in the image. Raises BedError."""
        script = '"$@" </dev/null >/dev/null 2>&1 & echo $!'
        done = self.exec("sh", "-c", script, "sh", *command)
        if done.exit_code:
            raise BedError(f"{command}: {done.stderr}")
        inner = int(done.stdout)
        for pid in self.pids:
            if _pid_inside(pid) == inner:
                return pid
        raise BedError(f"{command}: ended at once")

    def logs(self) -> str:
        """What it wrote since its last start, in the CRI's log format (time, stream, F or P, text)."""
        return (Path(self.pod.config.log_directory) / self._log_path).read_text()

    @property
    def _log_path(self) -> str:
        return f"{self.spec.name}/{self.attempt}.log"

    def _start(self) -> str:
        cri, spec, sandbox = self.pod.bed.cri, self.spec, self.pod.config
        (Path(sandbox.log_directory) / spec.name).mkdir(exist_ok=True)
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=spec.name, attempt=self.attempt),
            image=pb.ImageSpec(image=spec.image),
            command=spec.command,
            args=spec.args,
            envs=[pb.KeyValue(key=key, value=value) for key, value in spec.env.items()],
            mounts=[pb.Mount(host_path=str(m.path), container_path=m.at, readonly=m.readonly) for m in spec.mounts],
            labels={
                "io.kubernetes.container.name": spec.name,
                "io.kubernetes.pod.name": sandbox.metadata.name,
                "io.kubernetes.pod.namespace": sandbox.metadata.namespace,
                "io.kubernetes.pod.uid": sandbox.metadata.uid,
            },
            annotations={"io.kubernetes.container.restartCount": str(self.attempt)},
            log_path=self._log_path,
            linux=pb.LinuxContainerConfig(
                security_context=pb.LinuxContainerSecurityContext(
                    privileged=spec.privileged,
                    namespace_options=sandbox.linux.security_context.namespace_options,
                ),
            ),
        )
        if self.pod.sandbox_id is None:
            raise BedError(f"pod {self.pod.name} does not run")
        container_id = cri.create_container(self.pod.sandbox_id, config, sandbox)
        cri.start_container(container_id)
        return container_id


def _pid_inside(pid: int) -> int | None:
    """The pid that a process has in its innermost namespace (last figure of NSpid in /proc/<pid>/status)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return next((int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:")), None)
