"""The fake driver's GPM and the MIG instance of its events, through the real pynvml and its real structures."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from driver.node import FakeComputeInstance, FakeGpu, FakeGpuInstance, FakeNode, FakeProcess, GiB, gpus
from driver.probe import Probe
from patience import PATIENCE

INSTANCES = (FakeGpuInstance(3, 10 * GiB, (FakeComputeInstance("MIG-a", slot=0),)),)
MIG = FakeGpu(gpm=1, mig="on", instances=INSTANCES, processes=(FakeProcess(5, GiB, sm=70, device="MIG-a"),))
WHOLE = FakeGpu(gpm=1, processes=(FakeProcess(5, GiB, sm=42),))

PROGRAM = """
import time, pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
older, newer = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()

def read(into):
    n.nvmlGpmMigSampleGet(gpu, 3, into) if {mig} else n.nvmlGpmSampleGet(gpu, into)

def asked(one, other):
    get = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=2, sample1=one, sample2=other)
    get.metrics[0].metricId = n.NVML_GPM_METRIC_SM_UTIL
    get.metrics[1].metricId = n.NVML_GPM_METRIC_FP64_UTIL
    return n.nvmlGpmMetricsGet(get).metrics

def refused(call, *arguments):
    try:
        call(*arguments)
    except n.NVMLError as error:
        return error.value

print(n.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)
print(refused(asked, older, newer))
read(older)
read(newer)
print(refused(asked, older, newer))
time.sleep(0.1)
read(newer)
sm, fp64 = asked(older, newer)[:2]
print(sm.nvmlReturn, sm.value, fp64.nvmlReturn)
print(refused(asked, newer, older))
n.nvmlGpmSampleFree(older)
print(refused(asked, older, newer), refused(n.nvmlGpmSampleFree, older), refused(read, older))
"""


@pytest.mark.parametrize(("gpu", "percent"), [(WHOLE, 42.0), (MIG, 70.0)], ids=["whole", "mig"])
def test_a_figure_lies_between_two_samples(fake_node: FakeNode, gpu: FakeGpu, percent: float) -> None:
    """
    The figure of GPU or instance is there for two filled samples, the older one first, at least 100 ms apart.

    Else, and for a sample that was freed, INVALID_ARGUMENT; a metric that is not modelled is NOT_SUPPORTED by itself.
    """
    fake_node.write([gpu])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(mig=gpu is MIG)],
        env={**os.environ, **fake_node.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.stdout.splitlines() == ["1", "2", "2", f"0 {percent} 3", "2", "2 2 2"], done.stderr


def test_a_gpu_without_gpm_refuses(fake_node: FakeNode, nvml: Probe) -> None:
    """That there is no GPM is said in either of the driver's two ways."""
    fake_node.write([*gpus(1, gpm=0)])
    handle = nvml.device(fake_node.gpus[0].uuid)
    assert nvml.ask("nvmlGpmQueryDeviceSupport", handle)["isSupportedDevice"] == 0
    fake_node.write(gpus(1))
    assert nvml.code("nvmlGpmQueryDeviceSupport", handle) == 3


def test_an_xid_may_name_an_instance(fake_node: FakeNode, nvml: Probe) -> None:
    """0xFFFFFFFF is none; a GPU without events supports no type, and cannot be registered."""
    fake_node.write([MIG, FakeGpu(uuid="GPU-silent", minor=1, events=0)])
    handle, silent = nvml.device(MIG.uuid), nvml.device("GPU-silent")
    events = nvml.ask("nvmlEventSetCreate")
    nvml.ask("nvmlDeviceRegisterEvents", handle, 0x8, events)
    fake_node.inject_xid(MIG.uuid, 13, gpu_instance=3)
    fake_node.inject_xid(MIG.uuid, 43)
    first, second = (nvml.ask("nvmlEventSetWait_v2", events, 1000) for _ in range(2))
    assert (first["eventData"], first["gpuInstanceId"]) == (13, 3)
    assert (second["eventData"], second["gpuInstanceId"]) == (43, 0xFFFFFFFF)
    assert nvml.ask("nvmlDeviceGetSupportedEventTypes", silent) == 0
    assert nvml.code("nvmlDeviceRegisterEvents", silent, 0x8, events) == 3
    nvml.ask("nvmlEventSetFree", events)
