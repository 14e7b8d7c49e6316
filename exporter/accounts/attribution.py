"""
Attribution: the driver's entries, the kernel's owners and Kubernetes' names, put together.

What comes in: one GPU's sample, the host's answer about its pids, the inventory, and what was sighted before. What goes
out: each entry of the process lists with the place where it counts and the reason, and the new sightings.

The law: **attribute by process, and never by guess.** A number that the driver prints is believed only while the
process that first stood behind it still lives. Memory of a dead number counts in the container that was sighted with
it, as long as that container has a living member (a forked child holds the descriptor: pytorch#5736, nvitop#152); what
nothing explains is a ghost. A contradiction counts for no container.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from exporter.model import (
    Attribution,
    CgroupMemory,
    Container,
    ContainerId,
    DeviceKey,
    Fault,
    GpuProcess,
    GpuSample,
    HostSample,
    Inventory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    Subject,
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """
    The process and owner of an entry (device, raw pid) when it was first listed; `key` is None if it was dead then.

    `gap`: lists could not be read since, or not /proc. The entry may be another one of the same number.
    """

    key: ProcessKey | None
    owner: Owner | None
    gap: bool = False


Sightings = Mapping[tuple[DeviceKey, int], Sighting]
"""By device and raw pid."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One entry of the process lists and where it counts. `key` is the living process, None for a dead number."""

    process: GpuProcess
    attribution: Attribution
    subject: Subject | None = None
    key: ProcessKey | None = None


@dataclass(frozen=True, slots=True)
class Attributed:
    """
    One GPU's sample with its entries placed; `placed` is None when the lists could not be read.

    Attributes:
        counted: what the kernel counts of a container on a device by its cgroup, in place of its processes.
        unseen: containers of which some process could not be looked at, or pods where no more than that is known.
        anybodys: some process that could not be looked at may belong to any container.

    """

    sample: GpuSample
    placed: tuple[Placed, ...] | None
    counted: Mapping[tuple[Subject, DeviceKey], CgroupMemory] = field(default_factory=dict)
    unseen: frozenset[Subject] = frozenset()
    anybodys: bool = False

    def knows(self, subject: Subject) -> bool:
        """Say whether each of a container's processes was looked at."""
        return subject not in self.unseen and all(
            other.container or other.pod_uid != subject.pod_uid for other in self.unseen
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The inventory, indexed by what a cgroup path can say."""

    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: Mapping[ContainerId, Container] = field(default_factory=dict)
    depth: int | None = None
    """At which pair of an owner this kubelet's pods stand: 0 on a plain node. None while no pod was seen."""

    @classmethod
    def of(cls, inventory: Inventory, depth: int | None = None) -> "Names":
        """Index pods by UID and by the hash that stands in a static pod's cgroup, containers by id."""
        pods = {pod.config_hash: pod for pod in inventory.pods.values() if pod.config_hash}
        return cls({**pods, **inventory.pods}, {c.id: c for c in inventory.containers if c.id}, depth)

    def seeing(self, owners: Iterable[Owner | None]) -> "Names":
        """Learn from these owners how deep this kubelet's pods stand: as far out as any was ever seen."""
        depths = [depth for owner in owners if owner is not None and (depth := self._known_at(owner)) is not None]
        known = [*depths, *([] if self.depth is None else [self.depth])]
        return replace(self, depth=min(known, default=None))

    def _known_at(self, owner: Owner) -> int | None:
        for depth, (pod_uid, container_id) in enumerate(owner.pairs):
            if pod_uid in self.pods if pod_uid is not None else container_id in self.containers:
                return depth
        return None

    def subject(self, owner: Owner) -> Subject | Attribution:
        """
        Name the container of `owner`, or say where else its memory counts.

        The first pair from outside that Kubernetes knows wins, if it stands where this kubelet's pods stand: on a
        nested node (kind) the outer pairs are unknown here, but a pair below an unknown pod of our own depth is what a
        workload built below its own cgroup. A known pod whose container is not known (gVisor, Kata, or a status that
        lags behind the start) is named without a container.
        """
        if owner.contradictory:
            return Attribution.CONTRADICTORY
        depth = self._known_at(owner)
        if depth is not None and (self.depth is None or depth <= self.depth):
            pod_uid, container_id = owner.pairs[depth]
            container = self.containers.get(container_id) if container_id else None
            if pod_uid is None and container is not None:
                return Subject(container.pod_uid, container.name, container.id)
            if pod_uid is not None:
                pod = self.pods[pod_uid]
                if container is not None and container.pod_uid == pod.uid:
                    return Subject(pod.uid, container.name, container.id)
                return Subject(pod.uid, "", container_id)
        in_a_pod = any(pod_uid is not None for pod_uid, _ in owner.pairs)
        return Attribution.UNKNOWN_CONTAINER if in_a_pod else Attribution.HOST


def living_subjects(host: HostSample, names: Names) -> frozenset[Subject]:
    """Name the containers, and the pods where no more is known, that have at least one living process."""
    owners = (names.subject(owner) for owner in host.living or ())
    return frozenset(subject for subject in owners if isinstance(subject, Subject))


def attribute(
    sample: GpuSample, host: HostSample, names: Names, living: Collection[Subject], before: Sightings
) -> tuple[Attributed, Sightings]:
    """
    Place each entry of one GPU's process lists.

    Args:
        sample: what the GPU said.
        host: the kernel's answer about the raw pids of the sample (and of others).
        names: the inventory, indexed.
        living: the containers that have a living process; needed only when `needs_living` says so.
        before: the sightings that the last round of this GPU gave.

    Returns:
        The placed entries, and the sightings to pass in the next time. Entries that are listed no more are forgotten:
        a number that comes back is a new process.

    """
    counted = _counted(sample.cgroups, names)
    if sample.processes is None:
        return Attributed(sample, None, counted), {entry: replace(seen, gap=True) for entry, seen in before.items()}
    if not (host.pid_domain_proven and sample.pids_proven):
        unproven = tuple(Placed(process, Attribution.UNPROVEN) for process in sample.processes)
        return Attributed(sample, unproven, counted), _beyond_doubt(sample, before)
    placed, sightings = [], {}
    for process in sample.processes:
        entry = (process.device, process.pid)
        sighting = before.get(entry) or _sight(process.pid, host)
        current = host.processes.get(process.pid)
        if sighting is not None:
            closed = sighting.gap and current is not None and current.key == sighting.key
            sightings[entry] = replace(sighting, gap=False) if closed else sighting
        placed.append(_place(process, sighting, host, names, living))
    unseen = {names.subject(owner) for owner in sample.unseen}
    return Attributed(
        sample,
        tuple(placed),
        counted,
        unseen=frozenset(subject for subject in unseen if isinstance(subject, Subject)),
        anybodys=Attribution.CONTRADICTORY in unseen,
    ), sightings


def _beyond_doubt(sample: GpuSample, before: Sightings) -> Sightings:
    # Where the host's domain is not proven, /proc is in doubt, not the list: the driver numbers as ever. What left the
    # list is forgotten as ever, so that its number inherits nothing when it comes back. What is still listed would, if
    # it were forgotten, be charged to the process that has its number by then: with the `gap` to none.
    listed = {(process.device, process.pid) for process in sample.processes or () if sample.pids_proven}
    return {entry: replace(seen, gap=True) for entry, seen in before.items() if entry in listed}


def _counted(cgroups: Iterable[CgroupMemory], names: Names) -> dict[tuple[Subject, DeviceKey], CgroupMemory]:
    """Name the containers of cgroups. Of several of one container it is the outer, which holds most."""
    largest: dict[tuple[Subject, DeviceKey], CgroupMemory] = {}
    for cgroup in cgroups:
        subject = names.subject(cgroup.owner)
        if isinstance(subject, Subject) and subject.container:
            known = largest.get((subject, cgroup.device))
            largest[subject, cgroup.device] = cgroup if known is None or cgroup.used > known.used else known
    return largest


def believed(
    sample: GpuSample, host: HostSample, names: Names, handed_out: Mapping[DeviceKey, Collection[Subject]]
) -> GpuSample:
    """
    Prove the numbers of a driver that may print those of other PID namespaces, or say that they are unproven.

    They are the host's where each living process behind them belongs to a container which was handed this device. A
    number of another namespace (1, 7, 30) is a process of the host here, or of another container. `handed_out`: the
    containers to which the kubelet handed each device.
    """
    if sample.pids_proven or not sample.processes:
        return sample
    owners = [
        (process.device, current.owner)
        for process in sample.processes
        if (current := host.processes.get(process.pid)) is not None and current.alive and current.owner is not None
    ]
    seen = host.unreadable.isdisjoint(process.pid for process in sample.processes)
    if seen and owners and all(names.subject(owner) in handed_out.get(device, ()) for device, owner in owners):
        return replace(sample, pids_proven=True)
    message = (
        f"the process numbers of {sample.gpu.model} {sample.gpu.index} may be those of other PID namespaces: proven "
        "only while each of its processes has the device open and may be looked at (SYS_PTRACE), or is in a container "
        "that was handed the device; until then nobody is named"
    )
    fault = Fault("devices", "pids_unproven", message, sample.gpu.uuid, incomplete=False)
    return replace(sample, faults=(*sample.faults, fault))


def needs_living(samples: Iterable[GpuSample], host: HostSample, before: Sightings) -> bool:
    """Say whether a dead or reused number is listed whose container was sighted: then the living must be counted."""
    if not host.pid_domain_proven:
        return False
    for sample in samples:
        for process in sample.processes or ():
            current = host.processes.get(process.pid)
            sighting = before.get((process.device, process.pid))
            owner = sighting.owner if sighting else current.owner if current else None
            if owner is None or not owner.pairs or process.pid in host.unreadable:
                continue
            if current is None or not current.alive or (sighting is not None and sighting.key != current.key):
                return True
    return False


def _sight(pid: int, host: HostSample) -> Sighting | None:
    """First sight of an entry. What could not be read is not sighted, so that the next round may still see it."""
    if pid in host.unreadable:
        return None
    current = host.processes.get(pid)
    if current is None:
        return Sighting(None, None)
    if current.alive and current.owner is None:
        return None
    return Sighting(current.key if current.alive else None, current.owner)


def _place(
    process: GpuProcess, sighting: Sighting | None, host: HostSample, names: Names, living: Collection[Subject]
) -> Placed:
    current = host.processes.get(process.pid)
    if sighting is None:
        return Placed(process, Attribution.UNREADABLE)
    if process.pid in host.unreadable:
        # It was sighted before, and is hidden now: whether it is still the same process cannot be said.
        return Placed(process, Attribution.UNREADABLE)
    same = current is not None and current.alive and current.key == sighting.key
    # A process keeps its container, apart from runtimes that move it right after its start: the fresh path counts.
    owner = (current.owner if current is not None and same else None) or sighting.owner
    if owner is None:
        return Placed(process, Attribution.GHOST)
    named = names.subject(owner)
    if same and current is not None:
        if isinstance(named, Attribution):
            return Placed(process, named, key=current.key)
        return Placed(process, Attribution.CONTAINER, named, current.key)
    if sighting.gap and current is not None:
        return Placed(process, Attribution.AMBIGUOUS)
    if isinstance(named, Subject) and named in living:
        return Placed(process, Attribution.INHERITED, named)
    return Placed(process, Attribution.GHOST)
