"""
Where the kubelet of this node keeps its pods, among the cgroups.

What comes in: the folder that an operator wrote, and /proc. What goes out: a `PodCgroups`, and a log line that says
which and why.

The rule: what an operator wrote counts, else what this process's own pod shows, else what is usual. A process in any
other folder is the host's, whatever its folder is called.
"""

from pathlib import Path

import structlog

from exporter.base.cgroup_owner import Origin, PodCgroups, configured, learned
from exporter.host.procfs import proc_root

log = structlog.get_logger()

SETTING = "set node.pods_cgroup to the cgroup that has the pods, such as /kubepods.slice"
_OWN = Path("/proc/self/cgroup")


def pod_cgroups(wanted: Path | None, host_root: Path, own: Path = _OWN) -> PodCgroups:
    """Find out where the pods are: `wanted` by the operator, or learned. What cannot be read teaches nothing."""
    if wanted is not None:
        return configured(str(wanted))
    return learned(_text(own), _text(proc_root(host_root) / "1/cgroup"))


def log_choice(pods: PodCgroups, *, in_a_pod: bool) -> None:
    """Say where the pods are looked for, and how that is known. `in_a_pod`: this process should have learned it."""
    log.info("host.pods_cgroup", cgroup=pods.described, origin=str(pods.origin))
    if pods.origin is Origin.DEFAULT and in_a_pod:
        log.warning(
            "host.pods_cgroup_not_learned",
            cause=f"{_OWN} names no pod, although this daemon runs in one",
            effect="GPU processes in other cgroups count as host processes",
            fix=SETTING,
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""
