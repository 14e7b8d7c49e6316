"""
The node: driver, PID domain, cgroups.

What comes in: what driver and kernel answered. What goes out: a line for each.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from exporter.check.lines import Failed, Line, Verdict, advised, count, worst
from exporter.devices import DevicesSample
from exporter.model import Fault, Gpu, Owner
from exporter.model.vendors import NVIDIA, TRUSTED, VENDOR, Vendor


@dataclass(frozen=True, slots=True)
class PidDomain:
    """`doubt`: what is missing from the proof for the `/proc` at `root`; `fault`: why the daemon would not use it."""

    root: str
    doubt: Fault | None
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class CgroupView:
    """
    What the node's processes show of their owners.

    Attributes:
        text: `/proc/1/cgroup`.
        private: this process lives in a cgroup namespace of its own; None when that could not be read.
        owners: those of all living processes.

    """

    text: str
    private: bool | None
    owners: Collection[Owner] = ()
    faults: tuple[Fault, ...] = ()


def driver(found: DevicesSample | Failed | None) -> Line:
    """Judge the driver's answer; None: devices are simulated."""
    if found is None:
        return Line("driver", Verdict.OK, "not asked: the devices are simulated, and so are their pods")
    if isinstance(found, Failed):
        return Line("driver", Verdict.FAIL, found.message)
    faults = [*found.faults, *(fault for sample in found.samples for fault in sample.faults)]
    description = [_describe(found)] if found.samples else []
    if faults:
        return Line("driver", worst(faults), "; ".join([*map(advised, faults), *description]))
    if not found.present:
        message = "no GPU: the node has none, or the container is shown none (NVIDIA_VISIBLE_DEVICES=all)"
        return Line("driver", Verdict.WARN, message)
    return Line("driver", Verdict.OK, description[0])


def vendors(found: DevicesSample | Failed | None) -> tuple[Line, ...]:
    """Name the vendors whose figures were not compared with hardware, each with what is never known of it."""
    if found is None or isinstance(found, Failed):
        return ()
    present = {sample.gpu.vendor for sample in found.samples}
    partial = {sample.gpu.vendor for sample in found.samples if sample.partial}
    lines = []
    for vendor in (VENDOR[name] for name in sorted(present - TRUSTED)):
        message = (
            f"not tried on hardware, so the enforcer only reports it unless policy.trusted_vendors names {vendor.name}"
        )
        if vendor.unknown:
            message += f"; never known: {vendor.unknown}"
        if vendor.partial and vendor.name in partial:
            message += f"; {vendor.partial}"
        lines.append(Line(vendor.title, Verdict.OK, message))
    return tuple(lines)


def recording(found: str | Failed) -> Line:
    """Judge the recording that is to be played."""
    if isinstance(found, Failed):
        return Line("driver", Verdict.FAIL, found.message)
    return Line("driver", Verdict.OK, f"not asked: {found}")


def pid_domain(found: PidDomain | Failed) -> Line:
    """Judge whether the numbers of the driver are those of `/proc`."""
    if isinstance(found, Failed):
        return Line("pid domain", Verdict.FAIL, found.message)
    if found.fault is not None:
        return Line("pid domain", Verdict.FAIL, found.fault.message)
    if found.doubt is not None:
        message = f"not proven, but believed, as node.trust_pid_namespace says: {found.doubt.message}"
        return Line("pid domain", Verdict.WARN, message)
    return Line("pid domain", Verdict.OK, f"{found.root} numbers processes as the driver does")


def cgroups(found: CgroupView | Failed) -> Line:
    """Judge whether the owners of processes can be read."""
    if isinstance(found, Failed):
        return Line("cgroup view", Verdict.FAIL, found.message)
    view = {True: "a private cgroup namespace", False: "the host's view", None: "an unknown view"}[found.private]
    pairs = [pair for owner in found.owners for pair in owner.pairs]
    pods = {pod for pod, _ in pairs if pod}
    containers = {container for _, container in pairs if container}
    owners = f"{count(len(pods), 'pod')}, {count(len(containers), 'container')}"
    seen = f"{cgroup_version(found.text)}, {view}: owners in {owners}"
    if found.faults:
        return Line("cgroup view", Verdict.WARN, "; ".join([seen, *map(advised, found.faults)]))
    if not pairs:
        remedy = "if this node runs pods, their processes are hidden: set hostPID: true, or mount the host's /proc"
        return Line("cgroup view", Verdict.WARN, f"{seen}; {remedy}")
    return Line("cgroup view", Verdict.OK, seen)


def cgroup_version(text: str) -> str:
    """Name the version by what `/proc/<pid>/cgroup` looks like: v2 is the line that begins with `0::`."""
    lines = text.splitlines()
    unified = [line for line in lines if line.startswith("0::")]
    if not lines:
        return "cgroups unknown"
    if not unified:
        return "cgroup v1"
    return "cgroup v2" if len(lines) == len(unified) else "cgroup v1 and v2"


def _describe(found: DevicesSample) -> str:
    by_vendor: dict[str, list[Gpu]] = {}
    for sample in found.samples:
        by_vendor.setdefault(sample.gpu.vendor, []).append(sample.gpu)
    silent = len(found.present.keys() - {sample.gpu.uuid for sample in found.samples}) if len(by_vendor) == 1 else 0
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
