"""
Attribution: joins the driver's entries, the kernel's owners and Kubernetes' names.

What comes in: one GPU's sample, the host's answer about its PIDs, the inventory, and the sightings so far. What goes
out: each entry of the process lists with the account where it counts and the reason, and the new sightings.

The rule: **attribute by process, and never by guess.** A PID that the driver prints is believed only while the process
that was first seen with it still lives. Memory of a dead PID counts for the container that was sighted with it, as long
as that container has a living process. A forked child may hold the descriptor (pytorch#5736, nvitop#152). Memory
without any of these explanations is ghost memory. A contradiction counts for no container.
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

MOST_OWNERS = 2**11
"""Owners whose answer is kept, in 1 MB. A node has a few for each container, and new ones as processes come and go."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """
    The process and owner of an entry (device, raw PID) when it was first listed; `key` is None if it was dead then.

    `gap`: since then the GPU, its lists or /proc could not be read. The entry may be of another process of that PID.
    """

    key: ProcessKey | None
    owner: Owner | None
    gap: bool = False


Sightings = Mapping[tuple[DeviceKey, int], Sighting]
"""By device and raw PID."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One entry of the process lists and where it counts. `key` is the living process, None for a dead PID."""

    process: GpuProcess
    attribution: Attribution
    subject: Subject | None = None
    key: ProcessKey | None = None


@dataclass(frozen=True, slots=True)
class Attributed:
    """
    One GPU's sample with its entries placed; `placed` is None when the lists could not be read.

    Attributes:
        counted: the kernel's count for a container's cgroup on a device; it replaces the sum over the processes.
        unseen: containers of which some process could not be read; only the pod where no more is known.
        anybodys: some process that could not be read may belong to any container.
    """

    sample: GpuSample
    placed: tuple[Placed, ...] | None
    counted: Mapping[tuple[Subject, DeviceKey], CgroupMemory] = field(default_factory=dict)
    unseen: frozenset[Subject] = frozenset()
    anybodys: bool = False

    def knows(self, subject: Subject) -> bool:
        """Say whether each of a container's processes was read."""
        return subject not in self.unseen and all(
            other.container or other.pod_uid != subject.pod_uid for other in self.unseen
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The inventory, indexed by the ids in cgroup paths."""

    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    containers: Mapping[ContainerId, Container] = field(default_factory=dict)
    _known: dict[int, tuple[Owner, Subject | Attribution]] = field(default_factory=dict, compare=False)
    """Answers by the identity of the owner, which is kept: the processes of a container share one, and to hash it
    takes as long as to find the answer."""

    @classmethod
    def of(cls, inventory: Inventory) -> "Names":
        """Index pods by UID and by the hash that stands in a static pod's cgroup, containers by id."""
        pods = {pod.config_hash: pod for pod in inventory.pods.values() if pod.config_hash}
        return cls({**pods, **inventory.pods}, {c.id: c for c in inventory.containers if c.id})

    def subject(self, owner: Owner) -> Subject | Attribution:
        """
        Name the container of `owner`, or say where else its memory counts.

        A known pod whose container is not known (gVisor, Kata, or a status that lags behind the start) is named
        without a container.
        """
        known = self._known.get(id(owner))
        if known is None:
            if len(self._known) >= MOST_OWNERS:
                self._known.clear()
            known = self._known[id(owner)] = owner, self._find(owner)
        return known[1]

    def _find(self, owner: Owner) -> Subject | Attribution:
        if owner.contradictory:
            return Attribution.CONTRADICTORY
        pod_uid, container_id = owner.outermost
        container = self.containers.get(container_id) if container_id else None
        if pod_uid is None:
            return Subject(container.pod_uid, container.name, container.id) if container else Attribution.HOST
        if (pod := self.pods.get(pod_uid)) is None:
            return Attribution.UNKNOWN_CONTAINER
        if container is not None and container.pod_uid == pod.uid:
            return Subject(pod.uid, container.name, container.id)
        return Subject(pod.uid, "", container_id)


def living_subjects(host: HostSample, names: Names) -> frozenset[Subject]:
    """Name the containers with at least one living process; only the pod where no more is known."""
    owners = (names.subject(owner) for owner in host.living or ())
    return frozenset(subject for subject in owners if isinstance(subject, Subject))


def missed(before: Sightings) -> Sightings:
    """Note that the lists were not read: since then an entry may belong to another process of the same PID."""
    return {entry: seen if seen.gap else replace(seen, gap=True) for entry, seen in before.items()}


def attribute(
    sample: GpuSample, host: HostSample, names: Names, living: Collection[Subject], before: Sightings
) -> tuple[Attributed, Sightings]:
    """
    Place each entry of one GPU's process lists.

    Args:
        sample: the GPU's readings.
        host: the kernel's answer about the raw PIDs of the sample (and of others).
        names: the inventory, indexed.
        living: the containers that have a living process; needed only when `needs_living` says so.
        before: the sightings after the last round of this GPU.

    Returns:
        The placed entries, and the sightings for the next round. An entry that is no longer listed is forgotten: a PID
        that comes back is a new process.
    """
    counted = _counted(sample.cgroups, names)
    if sample.processes is None:
        return Attributed(sample, None, counted), missed(before)
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
    # If the host's PID domain is not proven, only /proc is in doubt, and not the driver's list. An entry that left the
    # list is forgotten, as always: its PID inherits nothing when it comes back. An entry that is still listed is kept
    # with a `gap`. Forgotten, it would later be charged to another process that has its PID by then.
    listed = {(process.device, process.pid) for process in sample.processes or () if sample.pids_proven}
    return {entry: replace(seen, gap=True) for entry, seen in before.items() if entry in listed}


def _counted(cgroups: Iterable[CgroupMemory], names: Names) -> dict[tuple[Subject, DeviceKey], CgroupMemory]:
    """Name the containers of cgroups. Of several cgroups of one container the outer one counts: it holds most."""
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
    Prove the PIDs of a driver that may print those of other PID namespaces, or report them as unproven.

    They are the host's if each living process with such a PID belongs to a container which was handed this device. A
    PID of another namespace (1, 7, 30) is here a process of the host or of another container. `handed_out`: the
    containers to which the kubelet allocated each device.
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
        f"the process numbers of {sample.gpu.model} {sample.gpu.index} may be those of other PID namespaces, so its "
        "memory is not attributed to pods. As a proof, each process has the device open and can be read (SYS_PTRACE), "
        "or is in a container that was handed the device"
    )
    fault = Fault("devices", "pids_unproven", message, sample.gpu.uuid, incomplete=False)
    return replace(sample, faults=(*sample.faults, fault))


def needs_living(samples: Iterable[GpuSample], host: HostSample, before: Sightings) -> bool:
    """
    Say whether the living containers must be counted.

    They must if a dead or reused PID is listed whose container was sighted.
    """
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
    """
    Note the first sight of an entry.

    An unreadable process is not sighted, so that the next round may still see it.
    """
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
        # It was sighted before, and cannot be read now: it may be another process.
        return Placed(process, Attribution.UNREADABLE)
    same = current is not None and current.alive and current.key == sighting.key
    # A process keeps its container. But runtimes move it right after its start, so the fresh path counts.
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
