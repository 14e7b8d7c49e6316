"""
NVIDIA GPUs, as the driver's own library (NVML) shows them. Only this package imports pynvml.

`source` is what the daemon uses; `library` is the typed border to pynvml, and `errors` says what each of its return
codes means to us. The others read one subject each.
"""

from exporter.devices.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
