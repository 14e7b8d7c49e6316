"""
Checks of the node: driver, PID domain, cgroups.

What comes in: the answers of driver and kernel. What goes out: a line for each.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from exporter.base.cgroup_owner import USUAL, Origin, PodCgroups
from exporter.base.problem import Problem
from exporter.check import remedies
from exporter.check.lines import Failed, Line, Verdict, count, worst
from exporter.devices import DevicesSample
from exporter.model import Fault, Gpu, Owner
from exporter.model.vendors import NVIDIA, TRUSTED, VENDOR, Vendor

_ORIGINS = {
    Origin.CONFIGURED: "configured",
    Origin.OWN_POD: "learned from the daemon's own pod",
    Origin.NAMESPACE: "its cgroup namespace is its own",
    Origin.DEFAULT: "the default: this process is in no pod",
}
_RECORDING = "name a complete file of `gpusteward record` in devices"
_PROOF = "set hostPID: true and remove node.trust_pid_namespace; on a nested node (kind, sysbox) leave it as it is"


@dataclass(frozen=True, slots=True)
class PidDomain:
    """`doubt`: the missing proof for the `/proc` at `root`; `fault`: why the daemon would not use it."""

    root: str
    doubt: Problem | None
    fault: Problem | None


@dataclass(frozen=True, slots=True)
class CgroupView:
    """
    The owners of the node's processes, as this process sees them.

    Attributes:
        text: `/proc/1/cgroup`.
        private: this process lives in a cgroup namespace of its own; None when that could not be read.
        owners: those of all living processes.
        pods: where the kubelet keeps its pods.

    """

    text: str
    private: bool | None
    owners: Collection[Owner] = ()
    faults: tuple[Fault, ...] = ()
    pods: PodCgroups = USUAL


def driver(devices: DevicesSample | Failed | None) -> Line:
    """Judge the driver's answer; None: devices are simulated."""
    if devices is None:
        return Line("driver", Verdict.OK, "not asked: the devices are simulated, and so are their pods")
    if isinstance(devices, Failed):
        return Line("driver", Verdict.FAIL, devices.message, devices.fix or remedies.DRIVER)
    faults = [*devices.faults, *(fault for sample in devices.samples for fault in sample.faults)]
    description = [_describe(devices)] if devices.samples else []
    if faults:
        message = "; ".join([*(fault.message for fault in faults), *description])
        return Line("driver", worst(faults), message, remedies.of_faults(faults))
    if not devices.present:
        fix = "set NVIDIA_VISIBLE_DEVICES=all in the daemon's container, or ignore this on a node without GPUs"
        return Line("driver", Verdict.WARN, "the driver shows no GPU to this container", fix)
    return Line("driver", Verdict.OK, description[0])


def vendors(devices: DevicesSample | Failed | None) -> tuple[Line, ...]:
    """Name the vendors that were never compared with hardware, each with the figures that are always unknown."""
    if devices is None or isinstance(devices, Failed):
        return ()
    present = {sample.gpu.vendor for sample in devices.samples}
    partial = {sample.gpu.vendor for sample in devices.samples if sample.partial}
    lines = []
    for vendor in (VENDOR[name] for name in sorted(present - TRUSTED)):
        message = f"never tried on hardware; enforced only if policy.trusted_vendors has {vendor.name}"
        if vendor.unknown:
            message += f"; always unknown: {vendor.unknown}"
        if vendor.partial and vendor.name in partial:
            message += f"; {vendor.partial}"
        lines.append(Line(vendor.title, Verdict.OK, message))
    return tuple(lines)


def recording(description: str | Failed) -> Line:
    """Judge the recording that is to be played."""
    if isinstance(description, Failed):
        return Line("driver", Verdict.FAIL, description.message, description.fix or _RECORDING)
    return Line("driver", Verdict.OK, f"not asked: {description}")


def pid_domain(domain: PidDomain | Failed) -> Line:
    """Judge whether the driver's PIDs are those of `/proc`."""
    if isinstance(domain, Failed):
        return Line("pid domain", Verdict.FAIL, domain.message, domain.fix or remedies.PROC)
    if domain.fault is not None:
        return Line("pid domain", Verdict.FAIL, domain.fault.reason, domain.fault.fix or remedies.PID_DOMAIN)
    if domain.doubt is not None:
        message = f"accepted without proof, because node.trust_pid_namespace is set: {domain.doubt.reason}"
        return Line("pid domain", Verdict.WARN, message, _PROOF)
    return Line("pid domain", Verdict.OK, f"{domain.root} and the driver use the same process numbers")


def cgroups(cgroup_view: CgroupView | Failed) -> Line:
    """Judge whether the owners of processes can be read."""
    if isinstance(cgroup_view, Failed):
        return Line("cgroup view", Verdict.FAIL, cgroup_view.message, cgroup_view.fix or remedies.PROC)
    view = {True: "a private cgroup namespace", False: "the host's view", None: "an unknown view"}[cgroup_view.private]
    pairs = [pair for owner in cgroup_view.owners for pair in owner.pairs]
    pods = {pod for pod, _ in pairs if pod}
    containers = {container for _, container in pairs if container}
    owners = f"{count(len(pods), 'pod')}, {count(len(containers), 'container')}"
    seen = f"{cgroup_version(cgroup_view.text)}, {view}: owners in {owners}"
    seen = f"{seen}; pods are in {cgroup_view.pods.described} ({_ORIGINS[cgroup_view.pods.origin]})"
    if cgroup_view.faults:
        message = "; ".join([seen, *(fault.message for fault in cgroup_view.faults)])
        return Line("cgroup view", Verdict.WARN, message, remedies.of_faults(cgroup_view.faults, remedies.PROC))
    if not pairs:
        fix = "if this node runs pods, set hostPID: true, or mount the host's /proc: their processes are hidden"
        return Line("cgroup view", Verdict.WARN, seen, fix)
    return Line("cgroup view", Verdict.OK, seen)


def cgroup_version(text: str) -> str:
    """Name the cgroup version by the text of `/proc/<pid>/cgroup`: v2 is the line that begins with `0::`."""
    lines = text.splitlines()
    unified = [line for line in lines if line.startswith("0::")]
    if not lines:
        return "cgroups unknown"
    if not unified:
        return "cgroup v1"
    return "cgroup v2" if len(lines) == len(unified) else "cgroup v1 and v2"


def _describe(devices: DevicesSample) -> str:
    by_vendor: dict[str, list[Gpu]] = {}
    for sample in devices.samples:
        by_vendor.setdefault(sample.gpu.vendor, []).append(sample.gpu)
    silent = len(devices.present.keys() - {sample.gpu.uuid for sample in devices.samples}) if len(by_vendor) == 1 else 0
    return "; ".join(_gpus(VENDOR[name], gpus, len(gpus) + silent) for name, gpus in by_vendor.items())


def _gpus(vendor: Vendor, gpus: Sequence[Gpu], number: int) -> str:
    models = ", ".join(f"{many} x {model}" for model, many in Counter(gpu.model for gpu in gpus).items())
    text = f"{vendor.title} {gpus[0].driver_version}, {count(number, 'GPU')} ({models})"
    if divided := [gpu for gpu in gpus if gpu.mig]:
        parts = sum(len(gpu.instances) for gpu in divided)
        text += (
            f", MIG on {len(divided)} with {count(parts, 'instance')}"
            if vendor is NVIDIA
            else f", {len(divided)} divided into {count(parts, 'partition')}"
        )
    return text
