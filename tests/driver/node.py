"""A node with fake NVIDIA GPUs: the state folder that the library and the workloads share, and handles on both.

Law: every file is replaced by rename; nothing here knows NVML. README.md describes the folder.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from driver.build import SONAME, Variant, build
from driver.gpus import (
    FakeComputeInstance,
    FakeField,
    FakeGpu,
    FakeGpuInstance,
    FakeProcess,
    FakeSample,
    GiB,
    Kind,
    MiB,
    gpus,
    render,
)
from driver.workload import Says, Workload, WorkloadError, until

__all__ = [
    "FakeComputeInstance",
    "FakeField",
    "FakeGpu",
    "FakeGpuInstance",
    "FakeNode",
    "FakeProcess",
    "FakeSample",
    "GiB",
    "Kind",
    "MiB",
    "Says",
    "Variant",
    "Workload",
    "WorkloadError",
    "build",
    "gpus",
    "until",
]

_CALL: Final = struct.Struct("=112sQ8x")
_FOLDERS: Final = ("switches", "alloc", "load", "limits", "control", "says", "dev")


class FakeNode:
    """The state folder `folder` (made if missing), and the build from `driver.build.build`."""

    def __init__(self, folder: Path, build: Path, variant: Variant = Variant.MODERN) -> None:
        self.folder = folder
        self.build = build
        self.variant = variant
        self.gpus: tuple[FakeGpu, ...] = ()
        self._workloads: list[Workload] = []
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (folder, *(folder / name for name in _FOLDERS)):
            path.chmod(0o777)  # containers write here as whatever user they are
        for name in ("events", "dev/nvidiactl"):
            (folder / name).touch()
        self.reset_calls()

    def write(
        self,
        gpus: Sequence[FakeGpu],
        driver: str = "580.65.06",
        nvml: str | None = None,
        cuda: int = 13000,
        sample_period_us: int = 138_889,
        *,
        cgroups: Path | None = None,
    ) -> None:
        """Describe the node anew, at once for every process. `sample_period_us`: 72 samples in 10 s by default.

        `cgroups`: a folder that plays the unified cgroup hierarchy, for tests without root; None: the real one.
        """
        self.gpus = tuple(gpus)
        for gpu in gpus:
            (self.folder / "dev" / f"nvidia{gpu.minor}").touch()
        head = f"cgroups = {cgroups}\n" if cgroups else ""
        self._replace("node", head + render(gpus, driver, nvml or f"{cuda // 1000}.{driver}", cuda, sample_period_us))

    def unload_driver(self) -> None:
        """No driver any more: init answers DRIVER_NOT_LOADED, all else UNINITIALIZED. `write` brings it back."""
        (self.folder / "node").unlink()

    # What a process needs to load the library --------------------------------------------------------------------

    def library(self, variant: Variant | None = None) -> Path:
        return self.build / (variant or self.variant) / SONAME

    @property
    def workload_binary(self) -> Path:
        return self.build / "workload"

    def environment(self, variant: Variant | None = None) -> dict[str, str]:
        """Environment variables with which a new process loads this driver."""
        return {"LD_LIBRARY_PATH": str(self.library(variant).parent), "FAKE_NVML_STATE": str(self.folder)}

    def preload(self, variant: Variant | None = None) -> None:
        """Load the library into this process: a later `CDLL("libnvidia-ml.so.1")` finds it by its SONAME.

        One variant per process. The state folder is read from the environment at nvmlInit, so set it there too.
        """
        os.environ["FAKE_NVML_STATE"] = str(self.folder)
        ctypes.CDLL(str(self.library(variant)), mode=ctypes.RTLD_GLOBAL)

    # Misbehaviour ----------------------------------------------------------------------------------------------------

    def set_switch(self, name: str, value: object = "", *, gpu: str | None = None, times: int | None = None) -> None:
        """Turn a switch on (README.md lists them), for one GPU or MIG uuid or for all; `times`: it wears off."""
        self._replace(_switch(name, gpu), f"{value}{f' x{times}' if times else ''}\n")

    def clear_switch(self, name: str, *, gpu: str | None = None) -> None:
        (self.folder / _switch(name, gpu)).unlink(missing_ok=True)

    def switched(self, name: str, *, gpu: str | None = None) -> bool:
        return (self.folder / _switch(name, gpu)).exists()

    def fail(self, function: str, code: int, *, gpu: str | None = None, times: int | None = None) -> None:
        self.set_switch(f"fail.{function}", code, gpu=gpu, times=times)

    def hang(self, function: str, *, gpu: str | None = None) -> None:
        """The function blocks until `clear_switch("hang.<function>")`."""
        self.set_switch(f"hang.{function}", gpu=gpu)

    def slow(self, function: str, milliseconds: float, *, gpu: str | None = None) -> None:
        self.set_switch(f"slow.{function}", milliseconds, gpu=gpu)

    def inject_xid(self, gpu: str, code: int, *, gpu_instance: int | None = None, times: int = 1) -> None:
        """Make an XID error happen on a GPU, so many times; listeners get it if they had registered before."""
        instance = "" if gpu_instance is None else f" {gpu_instance}"
        self._append("events", f"xid {gpu} {code}{instance}\n" * times)

    def inject_mig_change(self, gpu: str) -> None:
        self._append("events", f"mig {gpu}\n")

    # What the library counted ---------------------------------------------------------------------------------------

    def calls(self, function: str) -> int:
        """How often a function was called, by all processes: one version (`..._v3`) or, without suffix, all versions.

        "nvmlInit" stands for all forms of init.
        """
        return sum(count for name, count in self.all_calls().items() if function in (name, _unversioned(name)))

    def all_calls(self) -> dict[str, int]:
        records = _CALL.iter_unpack((self.folder / "calls").read_bytes())
        return {name.rstrip(b"\0").decode(): count for name, count in records if count}

    def reset_calls(self) -> None:
        """Start counting from zero, in place and never shorter: processes have the file mapped."""
        path = self.folder / "calls"
        path.touch()
        path.chmod(0o666)
        with path.open("r+b") as file:
            for offset in range(0, path.stat().st_size, _CALL.size):
                file.seek(offset + 112)
                file.write(bytes(8))

    # Processes --------------------------------------------------------------------------------------------------------

    def spawn(
        self,
        *commands: str,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        binary: str | None = None,
        wait: bool = True,
    ) -> Workload:
        """Start a workload. `prefix`: words before it, such as `unshare`; `binary`: where it is then, if elsewhere.

        `wait`: return when its commands are done; WorkloadError when one of them was refused.
        """
        name = name or f"w{secrets.token_hex(4)}"
        process = subprocess.Popen(
            [*prefix, binary or str(self.workload_binary), "--leash", "--name", name, *commands],
            env={**os.environ, "FAKE_NVML_STATE": str(self.folder), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        workload = Workload(self.folder, name, process)
        self._workloads.append(workload)
        if wait:
            workload.ready()
        return workload

    def workload(self, name: str) -> Workload:
        """A handle on a workload that something else started (a container)."""
        return Workload(self.folder, name)

    def close(self) -> None:
        """End all that this node started, and let go every call that hangs."""
        for switch in (self.folder / "switches").glob("hang.*"):
            switch.unlink(missing_ok=True)
        for workload in self._workloads:
            workload.close()
        self._workloads.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _replace(self, name: str, text: str) -> None:
        draft = self.folder / f".{secrets.token_hex(6)}"
        draft.write_text(text)
        draft.chmod(0o666)
        draft.rename(self.folder / name)

    def _append(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line)


def _unversioned(name: str) -> str:
    return "nvmlInit" if name.startswith("nvmlInit") else name.rpartition("_v")[0] or name


def _switch(name: str, gpu: str | None) -> str:
    return f"switches/{name}{f'@{gpu}' if gpu else ''}"
