"""
Whose container a process is in, by the folders that the kubelet mounts into each container.

What comes in: texts of `/proc/<pid>/mountinfo`, which any user may read. What goes out: where the kubelet keeps the
pods' folders, and of which pod a process's mounts are.

The rule: **a mount names a pod by the kubelet's own folder, on the kubelet's own file system, or not at all.** The
kubelet mounts a termination log from `pods/<UID>/containers` into each container. A process that is moved to another
cgroup keeps its mounts. A tenant can hide mounts, or make folders of any name elsewhere, but cannot write in the
kubelet's folder. The folder is learned from the daemon's own pod. Outside of a pod, no mount names a pod.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from exporter.model import PodUid

_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
_OWN = re.compile(
    rf"^\d+ \d+ (?P<device>\d+:\d+) (?P<folder>\S*?)/pods/(?:{_UID})/containers/", re.ASCII | re.MULTILINE
)


class Origin(StrEnum):
    """Of which pod the mounts of a process are: its container's, none that is known, or only others."""

    OWN = "own"
    UNKNOWN = "unknown"
    ANOTHER = "another"


@dataclass(frozen=True, slots=True)
class KubeletFolder:
    """Where the kubelet keeps the pods' folders: the number of the device, and the folder in its file system."""

    device: str
    folder: str

    def origin(self, mountinfo: str, pod: PodUid) -> Origin:
        """Tell whether the mounts are those of a container of `pod`."""
        mount = rf"^\d+ \d+ {re.escape(self.device)} {re.escape(self.folder)}/pods/({_UID})/"
        named = set(re.findall(mount, mountinfo, re.ASCII | re.MULTILINE))
        if pod in named:
            return Origin.OWN
        return Origin.ANOTHER if named else Origin.UNKNOWN


def learned(own: str) -> KubeletFolder | None:
    """Learn it from the daemon's own `mountinfo`; None outside of a pod."""
    found = _OWN.search(own)
    return None if found is None else KubeletFolder(found["device"], found["folder"])
