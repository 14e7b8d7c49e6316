"""
What to do about each answer that is not good, for a reader who does not know the program.

What comes in: a fault's reason, or the API server's refusal. What goes out: one sentence in the imperative.

The rule: no answer is without one. A reason that is not listed here gets the fix of its kind.
"""

from collections.abc import Iterable

from exporter.model import Fault

_LOOK = "look for Xid errors in the kernel's log (dmesg)"
_MOUNTS = "mount the host's /proc, /sys and cgroup tree read-only below node.host_root, as the chart does"
_PRIVILEGED = "run the daemon privileged, or give its container the GPU's device files and CAP_SYS_PTRACE"
FAULTS = {
    "access_lost": "restart the daemon's pod, so that its container gets the GPU's device files again",
    "dmem_unread": _MOUNTS,
    "dmem_unseen": "mount the host's cgroup tree: set hostCgroups: true in the chart",
    "driver_error": "check that nvidia-smi, or the vendor's own tool, works on the node",
    "driver_gone": "check that nvidia-smi works on the node",
    "driver_hung": "look for Xid errors and hung tasks in the kernel's log (dmesg); often only a reboot helps",
    "fdinfo_denied": _PRIVILEGED,
    "fdinfo_unclear": "report the kernel version and the driver as a bug: this form of fdinfo is unknown",
    "figures_unread": "check that nvidia-smi, or the vendor's own tool, shows these figures on the node",
    "gpu_lost": f"{_LOOK}; drain the node, and reset the GPU or reboot",
    "gpu_not_found": f"{_LOOK}; drain the node, and reset the GPU or reboot",
    "kernel_unreadable": _MOUNTS,
    "kfd_denied": _PRIVILEGED,
    "layout_unknown": "report the version of the vendor's library as a bug: it is not known here",
    "library_gone": "check that the vendor's own tool works on the node (npu-smi, cnmon, ixsmi, mx-smi ...)",
    "names_invalid": "correct names.file at this place; docs/configuration.md lists the keys of an entry",
    "names_unreadable": "write the list to names.file, where the daemon can read it, or set another names.source",
    "no_permission": "if the daemon should see this device, give its container all GPUs and capabilities that "
    "docs/deploy.md lists",
    "partitions_unread": _MOUNTS,
    "processes_unknown": "add kfd to --devices, or set it to auto",
    "pods_elsewhere": "set node.pods_cgroup if this cluster's pods are there. A second kubelet or a test cluster on "
    "this machine is harmless. Else find the user who made this cgroup",
    "processes_unreadable": "run the daemon as uid 0, and mount the host's /proc without hidepid",
    "processes_cut": "nothing to do on the node: the vendor's library lists no more processes of one device",
    "source_failed": "report this line as a bug",
    "source_lost": "check that the vendor's own tool works on the node",
    "xids_unheard": "check that nvidia-smi works on the node; without these events only XID metrics are missing",
}
"""Reason of a fault -> what to do about it."""
DRIVER = "check that nvidia-smi, or the vendor's own tool, works on the node and in the daemon's container"
"""What to do about a driver that does not work, where it does not say why."""
KUBELET = "check that the kubelet runs on the node (journalctl -u kubelet), and set node.kubelet_root to its folder"
CONFIG = "correct the configuration; docs/reference/config.md lists each key"
PROC = _MOUNTS
PID_DOMAIN = "set hostPID: true, run as uid 0, and mount the host's /proc below node.host_root"
_SERVER = {
    401: "check that the daemon's ServiceAccount exists: its token is not accepted",
    403: "apply deploy/exporter/rbac.yaml, which grants the right",
}
_UNREACHED = {
    "NotConfigured": "run the daemon in a pod with a ServiceAccount token, or set names.kubeconfig to a readable file",
    "Untrusted": "put the CA of the API server into the kubeconfig, or into the pod's ServiceAccount volume",
    "Invalid": "check that this is the address of the API server, and that no proxy answers in its place",
}
_UNREACHABLE = (
    "check from the node that this address answers (curl -k ADDRESS/version): DNS, routes, firewall, NetworkPolicy"
)
_FAILING = "look at the API server's health (kubectl get --raw '/readyz?verbose'), and check again"


def of_faults(faults: Iterable[Fault], otherwise: str = DRIVER) -> str:
    """Say what to do about faults, each remedy once."""
    return "; ".join(dict.fromkeys(FAULTS.get(fault.reason, otherwise) for fault in faults))


def of_api(status: int, reason: str = "") -> str:
    """Say what to do about an API server that refused with this status, or (0) was not reached at all."""
    if not status:
        return _UNREACHED.get(reason, _UNREACHABLE)
    return _SERVER.get(status, _FAILING)
