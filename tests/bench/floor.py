"""
The floor of `make bench-peers`: what reading the driver and /proc costs by itself, without names, sums or pages.

In: seconds between two rounds. Out: nothing; it reads until it is ended. Law: each call is NVIDIA's own binding, and no
answer is kept.
"""

import contextlib
import sys
import time
from typing import Any

import pynvml as nvml

LISTS = (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses)
FIGURES = (
    nvml.nvmlDeviceGetMemoryInfo,
    nvml.nvmlDeviceGetUtilizationRates,
    nvml.nvmlDeviceGetPowerUsage,
    nvml.nvmlDeviceGetTotalEnergyConsumption,
)


def read(gpu: Any, since: int) -> int:
    """Read one GPU and its processes; the time of the newest sample of utilization."""
    for figure in FIGURES:
        figure(gpu)
    nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
    pids = {process.pid for lists in LISTS for process in lists(gpu)}
    with contextlib.suppress(nvml.NVMLError):
        since = max((one.timeStamp for one in nvml.nvmlDeviceGetProcessUtilization(gpu, since)), default=since)
    for pid in pids:
        for name in ("stat", "cgroup"):
            with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123  (a Path costs more)
                file.read()
    return since


def main(interval: float) -> None:
    """Read all GPUs once per interval."""
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    newest, due = [0] * len(gpus), time.monotonic()
    print("ready", flush=True)
    while True:
        newest = [read(gpu, since) for gpu, since in zip(gpus, newest, strict=True)]
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(float(sys.argv[1]))
