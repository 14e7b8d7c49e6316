"""
The exporter's rights at the API server: exactly those that it uses.

What comes in: nothing. What goes out: data, for `gpusteward check`, and for the test that compares it with the
ClusterRole in deploy/.

The rule: each right is listed because a request needs it, and no request changes anything.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """
    One verb on one resource, in all namespaces.

    Attributes:
        group: API group; empty for the core.
        without: the loss if the right is missing.
        own_node: asked for the own node only, by name.
        needed: without it GPU memory is not attributed to pods.

    """

    verb: str
    group: str
    resource: str
    without: str
    own_node: bool = False
    needed: bool = False

    def __str__(self) -> str:
        """Write it for people: get jobs.batch, create pods/eviction."""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


RIGHTS = (
    Right("list", "", "pods", "GPU memory is not attributed to pods", needed=True),
    Right("watch", "", "pods", "GPU memory is not attributed to pods", needed=True),
    Right("get", "", "nodes", "MPS is reported as time-slicing", own_node=True),
    Right("get", "apps", "replicasets", "the workload is the ReplicaSet, not its Deployment"),
    Right("get", "apps", "statefulsets", "the workload is the StatefulSet, not what controls it"),
    Right("get", "batch", "jobs", "the workload is the Job, not its CronJob"),
    Right("get", "", "namespaces", "no pod is acted on, because the labels of namespaces are unknown"),
    Right("get", "resource.k8s.io", "resourceclaims", "limits of resource claims (DRA) are unknown"),
    Right("list", "resource.k8s.io", "resourceslices", "MIG instances of resource claims (DRA) are unknown"),
)
