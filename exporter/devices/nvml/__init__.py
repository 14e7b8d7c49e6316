"""
NVIDIA GPUs, read through the driver's own library (NVML). Only this package imports pynvml.

The daemon uses `source`. `library` is the typed border to pynvml, and `errors` turns its return codes into exceptions.
Each of the other modules reads one kind of figure.
"""

from exporter.devices.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
