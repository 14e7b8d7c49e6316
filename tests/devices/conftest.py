"""The fixtures of these tests: a node with fake GPUs, and NVML sources on it."""

from driver.fixtures import driver_build, fake_node
from sources.kernel import as_nobody
from sources.nvml import answered, nvml, probe, program, read_one, samples

__all__ = ["answered", "as_nobody", "driver_build", "fake_node", "nvml", "probe", "program", "read_one", "samples"]
