"""The real pynvml in a process of its own: a function's name and arguments go in, plain data comes out.

A process can load one variant of the library, so there is one process per variant. Tests ask about several states, so
each question says which state folder it is about.
Law: nothing is interpreted here; what pynvml raises comes back as it is.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from driver.build import SONAME, Variant
from patience import PATIENCE


@dataclass(frozen=True, slots=True)
class Handle:
    """A handle of a device or of an instance, or an event set, by its address in the probe's process."""

    address: int
    kind: str


class Refused(Exception):  # noqa: N818  (an answer, not a failure of the probe)
    """pynvml raised: `code` is the NVMLError's value, None for its other exceptions (`what`)."""

    def __init__(self, code: int | None, what: str) -> None:
        super().__init__(code, what)
        self.code = code
        self.what = what


class Probe:
    """A process with pynvml and one variant of the library; `state` is the folder that questions are about."""

    def __init__(self, build: Path, variant: Variant) -> None:
        self.state: Path | None = None
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_load,
            initargs=(str(build / variant / SONAME),),
        )

    def ask(self, function: str, *arguments: object) -> Any:
        """Call pynvml's function; Refused when it raises."""
        return self.asking(function, *arguments).result(timeout=PATIENCE)

    def asking(self, function: str, *arguments: object) -> Future[Any]:
        """The same without waiting."""
        return self._pool.submit(_answer, str(self.state), function, arguments)

    def code(self, function: str, *arguments: object) -> int | None:
        """The code of the NVMLError that the function raises, None when it raises none."""
        try:
            self.ask(function, *arguments)
        except Refused as refused:
            if refused.code is None:
                raise
            return refused.code
        return None

    @contextmanager
    def variable(self, name: str, value: object) -> Iterator[None]:
        """Set an environment variable of the process within the `with`; after it there is none."""
        self.ask(f"set:{name}", str(value))
        try:
            yield
        finally:
            self.ask(f"set:{name}", None)

    def device(self, uuid: str) -> Handle:
        handle: Handle = self.ask("nvmlDeviceGetHandleByUUID", uuid.encode())
        return handle

    def close(self) -> None:
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# In the probe's process ----------------------------------------------------------------------------------------------

_V1_LISTS: Final = {
    "v1:compute": "nvmlDeviceGetComputeRunningProcesses",
    "v1:graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}


class _ProcessV1(ctypes.Structure):
    """The 16-byte entry of the first list calls, which pynvml has no wrapper for any more."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def _load(library: str) -> None:
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # pynvml's CDLL("libnvidia-ml.so.1") then finds it by SONAME


def _answer(state: str, function: str, arguments: tuple[object, ...]) -> Any:
    import pynvml  # here and not above: the library has to be loaded before it is asked for

    try:
        if os.environ.get("FAKE_NVML_STATE") != state:
            os.environ["FAKE_NVML_STATE"] = state
        if function.startswith("set:"):
            (value,) = arguments
            os.environ.pop(name := function.removeprefix("set:"), None)
            if value is not None:
                os.environ[name] = str(value)
            return None
        if not function.startswith(("nvmlInit", "nvmlShutdown", "has:")):
            _initialize(pynvml, state)
        given = [_handle(pynvml, a) if isinstance(a, Handle) else a for a in arguments]
        if function.startswith("has:"):
            pynvml._LoadNvmlLibrary()
            return hasattr(pynvml.nvmlLib, function.removeprefix("has:"))
        if function in _V1_LISTS:
            return _list_v1(pynvml, _V1_LISTS[function], given[0])
        return _plain(pynvml, getattr(pynvml, function)(*given))
    except pynvml.NVMLError as error:
        raise Refused(error.value, str(error)) from None
    except pynvml.NVMLLibraryMismatchError as error:
        raise Refused(None, f"NVMLLibraryMismatchError: {error}") from None


_initialized_for: str | None = None


def _initialize(pynvml: Any, state: str) -> None:
    global _initialized_for  # noqa: PLW0603  (init once per state, as a daemon does)
    if _initialized_for != state:
        pynvml.nvmlInit()
        _initialized_for = state


def _handle(pynvml: Any, handle: Handle) -> Any:
    return ctypes.cast(handle.address, getattr(pynvml, handle.kind))


def _plain(pynvml: Any, value: Any) -> Any:
    if isinstance(value, list | ctypes.Array):
        return [_plain(pynvml, item) for item in value]
    for kind in ("c_nvmlDevice_t", "c_nvmlEventSet_t", "c_nvmlGpuInstance_t", "c_nvmlComputeInstance_t"):
        if isinstance(value, getattr(pynvml, kind)):
            return Handle(ctypes.cast(value, ctypes.c_void_p).value or 0, kind)
    if isinstance(value, ctypes.Structure | ctypes.Union):
        return {field[0]: _plain(pynvml, getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return dict(vars(value))
    return value


def _list_v1(pynvml: Any, name: str, handle: Any) -> list[dict[str, int]]:
    function = pynvml._nvmlGetFunctionPointer(name)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    entries = (_ProcessV1 * (count.value + 5))()
    if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        count.value += 5
        code = function(handle, ctypes.byref(count), entries)
    pynvml._nvmlCheckReturn(code)
    return [{"pid": entry.pid, "usedGpuMemory": entry.usedGpuMemory} for entry in entries[: count.value]]
