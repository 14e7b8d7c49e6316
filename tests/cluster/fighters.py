"""
Workloads that exceed their limits, and do not end when they are asked to.

In: nothing. Out: objects to be created. Law: each fights in one way that real workloads have, too.
"""

from __future__ import annotations

from cluster.client import Object
from cluster.manifests import controller, job
from cluster.stage import GPU, spec
from cluster.test_decide import bare, declaring, deployment

OWN_GRACE = 5
FINALIZER = "test.gpusteward.io/holds"
WORKLOAD = "/bin/workload --name $WORKLOAD_NAME-$n"
STUBBORN = f"""
trap '' TERM
/bin/workload &
n=0
while :; do
  n=$((n + 1))
  (sleep 1 & sleep 1 & sleep 1 & sleep 1) &
  {WORKLOAD} "alloc visible 3GiB" "sleep 3000" exit &
  sleep 2
done
"""
"""Deaf; forks; its memory is another child's every two seconds, and always belongs to a living process."""
STORMING = f"""
/bin/workload &
n=0
while :; do
  n=$(((n + 1) % 50))
  {WORKLOAD} "alloc visible 512MiB" "sleep 20" exit
done
"""
"""Some thirty short-lived processes with GPU memory a second, in good order."""


def script(thing: Object, text: str) -> Object:
    """Let the pods of a controller run a script in place of the workload."""
    thing["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", text]
    return thing


def stubborn() -> Object:
    """A container deaf to SIGTERM, and a sidecar."""
    made = script(deployment("stubborn", "", "1Gi"), STUBBORN)
    pod = made["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = OWN_GRACE
    pod["containers"].append({**pod["containers"][0], "name": "side", "command": ["sleep", "86400"], "resources": {}})
    return made


def restless() -> Object:
    """A container on the other GPU that obeys its orders, and gets the order to restart."""
    return declaring(controller("Deployment", "restless", spec("alloc visible 3GiB", resource=GPU)), "1Gi")


def storming() -> Object:
    """A neighbour in good order, of ever other processes."""
    return script(deployment("storming", "", "2Gi"), STORMING)


def eternal() -> Object:
    """A Job whose pod's disruptions cost it nothing: it is made anew for ever."""
    ignoring = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    free = {"backoffLimit": 0, "podFailurePolicy": {"rules": [ignoring]}}
    return declaring(job("eternal", spec("alloc visible 3GiB", resource=GPU, restart="Never"), **free), "1Gi")


def clinging() -> Object:
    """A pod that stays in name, by a finalizer, and for its whole grace, by a preStop hook that does not return."""
    made = deployment("clinging", "4GiB", "1Gi")
    template = made["spec"]["template"]
    template["metadata"]["finalizers"] = [FINALIZER]
    template["spec"]["terminationGracePeriodSeconds"] = OWN_GRACE
    template["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "86400"]}}}
    return made


def leaving() -> Object:
    """A pod that takes an hour to end when it is asked to."""
    made = bare("leaving", "2GiB", "1Gi", terminationGracePeriodSeconds=3600)
    made["spec"]["containers"][0]["command"].append("ignore-term")
    return made
