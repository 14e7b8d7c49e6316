"""The versions of Kubernetes that the test bed runs, and what a bed sets differently for each.

In: the name of a version, for instance "1.37". Out: its programs' module below `tools/`, its feature gates, settings of
its kubelet. The rule: a difference between versions is written here, and nowhere else in the bed.

`GPUSTEWARD_KUBERNETES=1.37` chooses the version of each bed whose test asks for none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

VARIABLE = "GPUSTEWARD_KUBERNETES"
DEFAULT = "1.34"


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """
    One version, or a version with more feature gates.

    minor:      "1.37"; go.mod of its module pins the patch.
    gates:      of all its parts. A part refuses to start with a gate that its version does not know.
    apis:       group/version of APIs that are served beside those that are by default.
    on_v1:      settings of its kubelet on a machine with cgroup v1.
    """

    minor: str
    gates: Mapping[str, bool] = field(default_factory=dict)
    apis: Sequence[str] = ()
    on_v1: Mapping[str, object] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The Go module that builds it, a folder of `tools/`."""
        return "kubernetes" if self.minor == DEFAULT else f"kubernetes-{self.minor}"


# Claims of a share of a device, and extended resources that the scheduler serves by claims: alpha in 1.34, and on by
# default from 1.36 on.
CLAIMS = {"DRAConsumableCapacity": True, "DRAExtendedResource": True}
# From 1.35 on the kubelet refuses cgroup v1 unless its config allows that (KEP-5573).
V1_ALLOWED = {"failCgroupV1": False}

# Of 1.37, off by default, and of what gpusteward reads or does: evictions, claims, pod-resources, resources of pods.
# On by default are device taints, partitionable devices, resource health, pod-level resources and their resize.
GATES = dict.fromkeys(
    (
        "EvictionRequestAPI",
        "GenericWorkload",  # PodGroups
        "DRAWorkloadResourceClaims",  # one claim of all pods of a PodGroup
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAResourcePoolStatus",
        "DRAPartitionableDevicesType",
        "InPlacePodVerticalScalingSchedulerPreemption",
        "PodLevelResourceManagers",
        "PodGroupPreemptionPolicy",
        "PodAndContainerStatsFromCRI",
        "KubeletAllocatedPodsEndpoint",
        "NodeLifecycleConditions",
        "UserNamespacesHostNetworkSupport",
    ),
    True,
)
APIS = ("lifecycle.k8s.io/v1alpha1", "scheduling.k8s.io/v1beta1", "resource.k8s.io/v1alpha3")

VERSIONS: Mapping[str, Kubernetes] = {
    "1.30": Kubernetes("1.30"),  # the oldest on which gpusteward evicts
    DEFAULT: Kubernetes(DEFAULT, CLAIMS),  # what `make test` runs
    "1.37": Kubernetes("1.37", on_v1=V1_ALLOWED),
    "1.37-gates": Kubernetes("1.37", GATES, APIS, V1_ALLOWED),
}


def chosen() -> str:
    """The name of the version that GPUSTEWARD_KUBERNETES asks for; DEFAULT without it. Raises ValueError."""
    name = os.environ.get(VARIABLE) or DEFAULT
    if name not in VERSIONS:
        raise ValueError(f"{VARIABLE}={name}: the test bed has {', '.join(VERSIONS)}")
    return name


def later(one: str, other: str) -> bool:
    """Whether a minor version is later than another version of VERSIONS."""
    numbers = [tuple(map(int, minor.split("."))) for minor in (one, VERSIONS[other].minor)]
    return numbers[0] > numbers[1]
