"""
GPUs of AMD and Intel, read from the kernel's own files: no vendor library, no device opened.

Also the kernel's counts of device memory by cgroup, for any vendor's GPUs. The daemon uses `source` and `counting`.
`fdinfo`, `engines`, `clients`, `topology`, `dmem` and `sums` touch no file. `tree`, `cards`, `kfd`, `holders` and
`cgroups` read one kind of file each. `devices` and `assembling` join the results. docs/devices.md says what is read,
and what cannot be known.
"""

from exporter.devices.kernel.counting import Counting, counts_memory
from exporter.devices.kernel.holders import may_look
from exporter.devices.kernel.source import KernelSource, Roots

__all__ = ["Counting", "KernelSource", "Roots", "counts_memory", "may_look"]
