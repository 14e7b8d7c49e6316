"""
The names and allocations of the simulated node.

What comes in: the time. What goes out: the inventory, as from the kubelet and the API server.
"""

from collections import Counter
from collections.abc import Iterable

from exporter.model import (
    Allocation,
    Container,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Inventory,
    Pod,
    Sharing,
)
from exporter.simulated.playing import PlayedPod, pods
from exporter.simulated.scene import Place, device_key, scene


def inventory(started_at: float, time: float) -> Inventory:
    """Return the pods `time` seconds after the start, and their allocations."""
    playing = tuple(pods(time))
    return Inventory(
        pods={pod.uid: _pod(pod, started_at) for pod in playing},
        containers=tuple(
            Container(pod.uid, container.name, pod.container_id(container))
            for pod in playing
            for container in pod.row.containers
        ),
        # The kubelet lists allocations by name, not UID: two generations of one name have one entry.
        allocations=tuple(dict.fromkeys(allocation for pod in playing for allocation in _allocations(pod))),
        declared={pod.uid: _declared(pod) for pod in playing},
        namespaces={pod.row.namespace: _labels(pod.row.namespace) for pod in playing},
        sharing={
            key: (row.sharing, row.replicas) for index, row in enumerate(scene().gpus) for key in _devices_of(index)
        },
        known=True,
        live=True,
    )


def _devices_of(index: int) -> tuple[DeviceKey, ...]:
    return tuple(device_key(index, instance.id) for instance in scene().gpus[index].instances) or (device_key(index),)


def _pod(pod: PlayedPod, started_at: float) -> Pod:
    row = pod.row
    return Pod(
        pod.uid,
        row.namespace,
        pod.name,
        row.kind,
        row.workload,
        row.queue,
        row.priority_class,
        created_at=started_at + pod.began,
        terminating=pod.terminating,
        config_hash=pod.config_hash,
        phase="Running" if pod.running else "Pending",
        priority=scene().priorities.get(row.priority_class, 0),
        controller_kind="ReplicaSet" if row.kind == "Deployment" else row.kind,
        annotations=row.annotations,
    )


def _labels(namespace: str) -> dict[str, str]:
    consent = {"gpusteward.io/mode": "enforce"} if namespace in scene().consenting else {}
    return {"kubernetes.io/metadata.name": namespace, **consent}


def _declared(pod: PlayedPod) -> DeclaredPod:
    containers = []
    for row in pod.row.containers:
        devices = Counter(map(_resource, row.devices))
        limits = {resource: str(count * row.replicas) for resource, count in devices.items()}
        containers.append(DeclaredContainer(row.name, limits))
    return DeclaredPod(
        pod.uid, pod.row.namespace, pod.name, annotations=pod.row.annotations, containers=tuple(containers)
    )


def _allocations(pod: PlayedPod) -> Iterable[Allocation]:
    for row in pod.row.containers:
        for place in row.devices:
            yield Allocation(pod.row.namespace, pod.name, row.name, _resource(place), place.key, row.replicas)


def _resource(place: Place) -> str:
    """Return the name under which NVIDIA's device plugin hands out a device."""
    gpu = scene().gpus[place.gpu]
    profiles = {instance.id: instance.profile for instance in gpu.instances}
    if place.instance in profiles:
        return f"nvidia.com/mig-{profiles[place.instance]}"
    return "nvidia.com/gpu.shared" if gpu.sharing in {Sharing.TIME_SLICING, Sharing.MPS} else "nvidia.com/gpu"
