"""
A GPU on which no process came, went or moved since the last round: its attribution holds.

What comes in: the last attribution and accounts, and what this round has read. What goes out: the attribution with the
new sample, and the accounts with it, if they hold, too.

The rule: everything that the attribution depends on is the same object as before. Readers return the same objects for
what did not change: `ProcessLists` its entries, `Remembered` its processes. So the comparison costs 0.1 microseconds
for a process, and the attribution 5. Memory, utilization and figures of the GPU are those of the new sample.
"""

from dataclasses import replace

from exporter.accounts.accounting import GpuAccounts
from exporter.accounts.attribution import Attributed
from exporter.model import GpuSample, HostSample


def unchanged(last: Attributed, of: HostSample, sample: GpuSample, host: HostSample) -> Attributed | None:
    """
    Return the last attribution with the new sample, if nothing has changed that it depends on, else None.

    That is so if the lists are the same ones, and each process was alive and confirmed to be the same (`of`: what the
    host said then). The names must be the same, too. Devices whose memory the kernel counts by cgroup are left out.
    """
    if (
        last.placed is None
        or sample.processes is not last.sample.processes
        or not (sample.pids_proven and host.pid_domain_proven and of.pid_domain_proven)
        or sample.cgroups
        or last.sample.cgroups
        or sample.unseen != last.sample.unseen
    ):
        return None
    now, then = host.processes, of.processes
    for entry in last.placed:
        pid = entry.process.pid
        if entry.key is None or pid in host.unreadable or now.get(pid) is not then.get(pid):
            return None
    return replace(last, sample=sample)


def same_accounts(last: GpuAccounts, attributed: Attributed) -> GpuAccounts | None:
    """
    Return the last accounts with the new sample, if no figure of which they are made has changed, else None.

    `attributed` is the last attribution with the new sample. The caller compares what it was given beside that: the
    containers that were handed the devices, and the seconds for which their queues were evicted. The last peaks are in
    the last accounts. A GPU whose memory the kernel counts by cgroup has no `unchanged` attribution.
    """
    if _figures(attributed.sample) != _figures(last.sample):
        return None
    return replace(last, attributed=attributed)


def _figures(sample: GpuSample) -> object:
    """Return the figures of a GPU that its accounts are made of. SM utilization is used only for MIG instances."""
    return (
        sample.partial,
        sample.utilization,
        [
            (device, memory, None if device.gpu_instance is None else ratios.sm)
            for device, memory, ratios in sample.gpu.leaves()
        ],
    )
