"""The fake driver as a guest: descriptors, threads and forks of a process, the empty root of a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from driver.namespaces import in_new_namespace
from driver.node import FakeNode, GiB, gpus, until
from driver.probe import Probe

DESCRIPTORS = """
import os, pynvml as p
def ask():
    handle = p.nvmlDeviceGetHandleByIndex(0)
    p.nvmlDeviceGetMemoryInfo(handle), p.nvmlDeviceGetComputeRunningProcesses(handle)
    p.nvmlDeviceGetUtilizationRates(handle)
    return len(os.listdir("/proc/self/fd"))
p.nvmlInit()
print(ask(), [ask() for _ in range(100)][-1])
"""

THREADS = """
import os, threading, pynvml as p
p.nvmlInit()
handle = p.nvmlDeviceGetHandleByIndex(0)
answers = set()
def ask():
    for _ in range(100):
        answers.add((p.nvmlDeviceGetMemoryInfo(handle).used, len(p.nvmlDeviceGetComputeRunningProcesses(handle))))
        os.replace(draft(), os.environ["FAKE_NVML_STATE"] + "/node")
def draft():
    path = f"{os.environ['FAKE_NVML_STATE']}/.{threading.get_ident()}"
    open(path, "w").write(text)
    return path
text = open(os.environ["FAKE_NVML_STATE"] + "/node").read()
threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(answers))
"""

FORK = """
import os, pynvml as p
p.nvmlInit()
if os.fork() == 0:
    try:
        p.nvmlDeviceGetCount()
    except p.NVMLError as error:
        os._exit(error.value)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), p.nvmlDeviceGetCount())
"""


def output(fake_node: FakeNode, source: str) -> str:
    environment = {**os.environ, **fake_node.environment()}
    return subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_calls_leave_no_descriptors(fake_node: FakeNode) -> None:
    """A hundred rounds have as many descriptors open as one."""
    fake_node.write(gpus(1))
    fake_node.spawn("alloc 0 1 compute sm=5")
    once, later = output(fake_node, DESCRIPTORS).split()
    assert once == later


def test_threads_may_ask_at_once(fake_node: FakeNode) -> None:
    """Four threads ask while the node is replaced under them: always the same true answer."""
    fake_node.write(gpus(1))
    fake_node.spawn(f"alloc 0 {GiB}")
    assert output(fake_node, THREADS) == f"[({GiB}, 1)]"


def test_a_forked_child_has_to_initialize_again(fake_node: FakeNode) -> None:
    """In the child everything is UNINITIALIZED, in the parent all is well."""
    fake_node.write(gpus(3))
    assert output(fake_node, FORK) == "1 3"


def test_it_runs_in_an_empty_root_as_pid_1(fake_node: FakeNode, nvml: Probe, tmp_path: Path) -> None:
    """A container of nothing but the workload and the state folder: from outside it is charged to the byte."""
    fake_node.write(gpus(1))
    root = tmp_path / "root"
    for name in ("state", "proc"):
        (root / name).mkdir(parents=True)
    (root / "workload").write_bytes(fake_node.workload_binary.read_bytes())
    (root / "workload").chmod(0o755)
    mounts = f"mount --bind {fake_node.folder} {root}/state && mount -t proc proc {root}/proc"
    job = fake_node.spawn(
        f"alloc 0 {GiB}",
        prefix=[*in_new_namespace("--mount"), "sh", "-c", f'{mounts} && exec chroot {root} "$0" "$@"'],
        env={"FAKE_NVML_STATE": "/state"},
        binary="/workload",
    )
    says = job.children(2, 0, 1001)
    assert says.pid == 1
    gpu = nvml.device(fake_node.gpus[0].uuid)
    entries = nvml.ask("nvmlDeviceGetComputeRunningProcesses", gpu)
    assert sorted(entry["usedGpuMemory"] for entry in entries) == [1001, 1001, GiB]
    assert {Path(f"/proc/{entry['pid']}/root").readlink() for entry in entries} == {root}
    assert says.total == nvml.ask("nvmlDeviceGetMemoryInfo", gpu)["used"] == GiB + 2002
    job.close()
    until(lambda: nvml.ask("nvmlDeviceGetMemoryInfo", gpu)["used"] == 0, "the container to end")
