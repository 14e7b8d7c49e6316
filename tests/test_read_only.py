"""
The exporter is read-only: no file below `exporter/` holds code that could change the node, the cluster or a driver.

The test reads the syntax tree of every file. It looks for names, not for meaning, so a few harmless uses need a line in
`ALLOWED`, each with its reason. A line that matches nothing any more fails the test, too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

EXPORTER = Path(__file__).parent.parent / "exporter"

ALLOWED = {
    # (file, what is used): reason
    ("__main__.py", "signal.signal"): "it sets the handlers of its own process",
    ("base/text_files.py", "os.open"): "an opener: `open` passes it the flags of reading",
    ("devices/nvml/hardware.py", "gpu_reset"): "the name of an answer: what the driver says that a GPU needs",
    ("devices/nvml/hardware.py", "drain_and_reset"): "the same",
    ("devices/nvml/hardware.py", "bus_reset"): "the same",
    ("devices/nvml/library.py", "nvmlInit"): "a user of the library; changes no GPU",
    ("devices/nvml/library.py", "nvmlShutdown"): "the end of that",
    ("devices/nvml/library.py", "nvmlGpmSampleAlloc"): "memory of this process",
    ("devices/nvml/library.py", "nvmlGpmSampleFree"): "the end of that",
    ("devices/nvml/library.py", "nvmlEventSetCreate"): "a queue of this process, which its events come through",
    ("devices/nvml/library.py", "nvmlEventSetWait_v2"): "reads that queue",
    ("devices/nvml/library.py", "nvmlEventSetFree"): "the end of that queue",
    ("devices/nvml/library.py", "nvmlDeviceRegisterEvents"): "asks for events; each process has its own registration",
    ("devices/thread.py", "put"): "a queue in memory",
    ("host/remembered.py", "os.pidfd_open"): "it waits for the end of a process; to signal takes pidfd_send_signal",
    ("kube/client.py", "POST"): "SelfSubjectAccessReview: asks for the daemon's own rights, and stores nothing",
    ("recording/writer.py", "os.open"): "the recording that --record names",
    ("recording/writer.py", "os.write"): "the same",
    ("recording/writer.py", "os.ftruncate"): "the same: a line that was written in part is cut off",
    ("rounds/first_seen_file.py", "open"): "the daemon's own file, a draft of it",
    ("rounds/first_seen_file.py", "replace"): "the draft takes the place of the file",
    ("rounds/logs.py", "os.write"): "standard error",
}

PROCESSES = {
    "os": {"kill", "killpg", "pidfd_open", "fork", "forkpty", "system", "popen", "setpriority", "sched_setaffinity"},
    "signal": {"pidfd_send_signal", "pthread_kill", "raise_signal", "signal"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
}
FILES = {
    "os": {
        *("write", "writev", "pwrite", "sendfile", "truncate", "ftruncate", "mkdir", "makedirs", "mknod", "mkfifo"),
        *("replace", "rename", "renames", "remove", "removedirs", "unlink", "rmdir", "link", "symlink"),
        *("chmod", "fchmod", "chown", "fchown", "lchown", "utime", "setxattr", "removexattr", "mount", "umount"),
    }
}
MODULES = {"subprocess", "multiprocessing", "shutil", "tempfile", "pty", "enforcer"}
PATH_METHODS = {
    *("write_text", "write_bytes", "unlink", "rename", "mkdir", "rmdir", "touch", "chmod", "lchmod"),
    *("symlink_to", "hardlink_to", "send_signal", "kill", "terminate"),
}
HTTP_METHODS = {"POST", "PUT", "PATCH", "DELETE"}
API_METHOD = re.compile(r"(create|delete|patch|replace)_(namespaced|cluster|custom|collection|node)\w*", re.ASCII)
"""Of the generated Kubernetes client."""
NVML = re.compile(r"nvml[A-Z]\w*", re.ASCII)
NVML_READS = re.compile(
    r"nvml(System|Device|Unit|GpuInstance|ComputeInstance|Vgpu\w*)?Get\w+"  # a question
    r"|nvmlGpm(MetricsGet|SampleGet|MigSampleGet|QueryDeviceSupport)"
    r"|nvmlEventType\w+|nvmlMemory\w+|nvmlReturn",  # constants and fields
    re.ASCII,
)
VENDOR_WRITES = re.compile(r"\w*([a-z]Set(?=[A-Z])|_set_|_set$|Reset|_reset)\w*", re.ASCII)
"""Functions of other vendors' libraries are named by strings, as `dcmi_set_user_config`."""
MEANT = {ast.Import, ast.ImportFrom, ast.Attribute, ast.Name, ast.Constant, ast.Call}
"""What can change something: of 300,000 nodes half are something else."""
READING_FLAGS = {"O_RDONLY", "O_PATH", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_NOFOLLOW"}


def writes(source: str) -> Iterator[str]:
    """Name everything in a source that could change something outside of the process."""
    nodes = [node for node in ast.walk(ast.parse(source)) if type(node) in MEANT]
    modules: dict[str, str] = {}  # local name to module
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in MODULES:
                    yield module
                yield from (f"{module}.{alias.name}" for alias in names if _changes(module, alias.name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if _changes(modules.get(name, ""), attribute):
                yield f"{modules[name]}.{attribute}"
            case ast.Attribute(attr=attribute) | ast.Name(id=attribute):
                if _nvml_writes(attribute) or API_METHOD.fullmatch(attribute):
                    yield attribute
            case ast.Constant(value=str(text)):
                if text in HTTP_METHODS or _nvml_writes(text) or VENDOR_WRITES.fullmatch(text):
                    yield text
            case ast.Call():
                yield from _call(node, modules)


def _changes(module: str, name: str) -> bool:
    starts = module == "os" and name.startswith(("exec", "spawn", "posix_spawn"))
    return starts or name in PROCESSES.get(module, ()) or name in FILES.get(module, ())


def _nvml_writes(name: str) -> bool:
    return (NVML.fullmatch(name) is not None and NVML_READS.fullmatch(name) is None) or name.startswith("c_nvmlSet")


def _call(call: ast.Call, modules: dict[str, str]) -> Iterator[str]:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr="open") if modules.get(name) == "os":
            if not all(flag in READING_FLAGS for flag in _flags(call.args[1])):
                yield "os.open"
        case ast.Name(id="open") | ast.Attribute(attr="open"):
            builtin = isinstance(call.func, ast.Name)
            modes = [each.value for each in call.keywords if each.arg == "mode"] or call.args[builtin : builtin + 1]
            if any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+") for mode in modes):
                yield "open"
        case ast.Attribute(attr="replace") if len(arguments) == 1 and not call.keywords:
            yield "replace"  # of a path: a text's takes two, a structure's is by keyword
        case ast.Attribute(attr=("post" | "put" | "patch" | "delete") as method):
            yield method
        case ast.Attribute(attr=method) if method in PATH_METHODS:
            yield method
        case ast.Name(id="getattr" | "setattr" | "__import__" as function) if call.args and _is_module(call, modules):
            yield function


def _flags(expression: ast.expr) -> Iterator[str]:
    match expression:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _flags(left)
            yield from _flags(right)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            yield name
        case _:
            yield "?"


def _is_module(call: ast.Call, modules: dict[str, str]) -> bool:
    first = call.args[0]
    return isinstance(first, ast.Name) and modules.get(first.id) in {"os", "signal"}


def test_the_exporter_changes_nothing() -> None:
    """What could write, signal or start something is used where `ALLOWED` says, and nowhere else."""
    used = {
        (path.relative_to(EXPORTER).as_posix(), name)
        for path in EXPORTER.rglob("*.py")
        for name in writes(path.read_text())
    }

    assert used - ALLOWED.keys() == set()
    assert ALLOWED.keys() - used == set(), "remove what is not used any more"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pynvml\npynvml.nvmlDeviceSetMemoryLimits_v1(1)", "nvmlDeviceSetMemoryLimits_v1"),
        ("from pynvml import *\nnvmlDeviceResetGpuLockedClocks(gpu)", "nvmlDeviceResetGpuLockedClocks"),
        ("library._call('nvmlDeviceClearEccErrorCounts', gpu)", "nvmlDeviceClearEccErrorCounts"),
        ("library._call('nvmlGpuInstanceDestroy', gpu)", "nvmlGpuInstanceDestroy"),
        ("wanted = pynvml.c_nvmlSetMemoryLimits_v1_t()", "c_nvmlSetMemoryLimits_v1_t"),
        ("library.call('dcmi_set_user_config')", "dcmi_set_user_config"),
        ("library.call('cndevSetClock')", "cndevSetClock"),
        ("library.call('rsmi_dev_gpu_reset')", "rsmi_dev_gpu_reset"),
        ("import os\nos.kill(1, 9)", "os.kill"),
        ("import os as o\nend = o.kill", "os.kill"),
        ("from os import kill", "os.kill"),
        ("import os\ngetattr(os, 'ki' + 'll')", "getattr"),
        ("import signal\nsignal.pidfd_send_signal(3, 9)", "signal.pidfd_send_signal"),
        ("import os\nos.execv('/bin/true', [])", "os.execv"),
        ("import subprocess", "subprocess"),
        ("from subprocess import run", "subprocess"),
        ("import asyncio\nasyncio.create_subprocess_exec('true')", "asyncio.create_subprocess_exec"),
        ("from enforcer.actions import kill", "enforcer.actions"),
        ("method = 'DELETE'", "DELETE"),
        ("await session.patch(url)", "patch"),
        ("await api.delete_namespaced_pod(name)", "delete_namespaced_pod"),
        ("open('/x', 'w')", "open"),
        ("open('/x', mode='ab')", "open"),
        ("path.open('r+')", "open"),
        ("path.write_text('1')", "write_text"),
        ("path.unlink()", "unlink"),
        ("path.replace(other)", "replace"),
        ("import os\nos.replace(a, b)", "os.replace"),
        ("import os\nos.open(path, os.O_RDONLY | os.O_CREAT)", "os.open"),
        ("import os\nos.open(path, flags)", "os.open"),
        ("import shutil", "shutil"),
    ],
)
def test_what_changes_something_is_seen(source: str, name: str) -> None:
    """Each way to change something has a name here."""
    assert name in set(writes(source))


@pytest.mark.parametrize(
    "source",
    [
        "import pynvml\npynvml.nvmlDeviceGetUUID(gpu)",
        "library._call('nvmlGpmMigSampleGet', gpu)",
        "library.call('dcmi_get_device_hbm_info')",
        "library.call('rsmi_compute_process_info_get')",
        "seen = set()\nseen.add('a')",
        "open('/proc/1/stat', 'rb')",
        "path.open()",
        "path.read_text()",
        "import os\nos.open(path, os.O_PATH | os.O_CLOEXEC)",
        "import os\nos.listdir('/proc')",
        "text.replace('a', 'b')",
        "from dataclasses import replace\nreplace(sample, gpu=gpu)",
        "msgspec.structs.replace(config, **changed)",
        "method = 'GET'",
        "await session.get(url)",
    ],
)
def test_what_reads_is_let_be(source: str) -> None:
    """What only reads needs no line in the list."""
    assert list(writes(source)) == []
