"""
GPUs of AMD and Intel, as the kernel's own files show them: no vendor library, no device opened.

And what the kernel counts by cgroup, of any vendor's GPUs. `source` and `counting` are what the daemon uses.
`fdinfo`, `engines`, `clients`, `topology`, `dmem` and `sums` touch no file; `tree`, `cards`, `kfd`,
`holders` and `cgroups` read one subject each; `devices` and `assembling` put it together. docs/devices.md says what is
read, and what cannot be known.
"""

from exporter.devices.kernel.counting import Counting, counts_memory
from exporter.devices.kernel.holders import may_look
from exporter.devices.kernel.source import KernelSource, Roots

__all__ = ["Counting", "KernelSource", "Roots", "counts_memory", "may_look"]
