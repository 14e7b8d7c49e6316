"""
The names of limit holders.

A device, a pod, a container or a claim comes in. Keys go out that sort and compare.

The rule: a level belongs to a holder: a container's name in one pod, a pod, or a claim on one device. It survives a
restart of the container. A state, an action and a fence belong to a case: one generation of a holder on one device.
"""

from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import ContainerId, DeviceKey, PodUid


class HolderKey(NamedTuple):
    """
    A container by its name, a pod (`container` empty), or a claim (`claim` set, and no pod: pods may share it).

    A container or pod is one holder on all of its devices: it may move its excess from one to the next. A claim is a
    holder on each device, because another pod may hold most of each, and is acted on.
    """

    pod_uid: PodUid
    container: str
    claim: str
    uuid: str = ""
    gpu_instance: int = -1


@dataclass(slots=True, order=True, unsafe_hash=True)  # as `Case`
class CaseKey:
    """
    A limit holder on one device; a container in one generation, because a restart makes another process tree.

    Nothing changes it.
    """

    pod_uid: PodUid
    container: str
    container_id: ContainerId
    claim: str
    uuid: str
    gpu_instance: int = -1

    @property
    def device(self) -> tuple[str, int]:
        """The device, as it sorts."""
        return self.uuid, self.gpu_instance

    @property
    def any_generation(self) -> "CaseKey":
        """The same holder on the same device, in any generation of its container."""
        return CaseKey(self.pod_uid, self.container, ContainerId(""), self.claim, self.uuid, self.gpu_instance)

    @property
    def holder(self) -> HolderKey:
        """The holder whose level this case raises."""
        if self.claim:
            return HolderKey(PodUid(""), self.container, self.claim, self.uuid, self.gpu_instance)
        return HolderKey(self.pod_uid, self.container, "")


@dataclass(frozen=True, slots=True)
class Target:
    """The container, in one generation, that `kill` and `fence` act on."""

    container: str
    id: ContainerId


def key_of(
    device: DeviceKey, pod: PodUid, container: str = "", id_: ContainerId | None = None, *, claim: str = ""
) -> CaseKey:
    """Make the key of a limit holder on a device."""
    instance = -1 if device.gpu_instance is None else device.gpu_instance
    return CaseKey(pod, container, id_ or ContainerId(""), claim, device.uuid, instance)
