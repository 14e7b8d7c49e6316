"""A fake vendor library: the state file that its C side reads at each call, and a handle on it.

Law: every file is replaced by rename; nothing here knows a vendor's structures. README.md describes the file.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libraries.build import file_name

MiB = 2**20
GiB = 2**30


@dataclass(frozen=True, slots=True)
class FakeProcess:
    """An entry of a process list. `host_pid` is Kunlunxin's second number, 0: not known."""

    pid: int
    memory: int
    host_pid: int = 0
    busy: int = 0


@dataclass(frozen=True, slots=True)
class FakePart:
    """A vNPU."""

    id: int
    name: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """A device; what is not free is used, unless the test says otherwise. `card` and `in_card` are DCMI's place."""

    index: int
    uuid: str
    model: str = "X1"
    total: int = 32 * GiB
    free: int = 24 * GiB
    used: int | None = None
    reserved: int = 0
    busy: int = 0
    memory_busy: int = 0
    minor: int = 0
    pci: str = "0000:3b:00.0"
    card: int = 0
    in_card: int = 0
    node: str = ""
    processes: tuple[FakeProcess, ...] = ()
    parts: tuple[FakePart, ...] = ()


class FakeLibrary:
    """One library, whose state is in `folder`; the environment of its process names that as FAKE_LIBRARIES."""

    def __init__(self, folder: Path, build: Path, variant: str) -> None:
        self.folder = folder
        self.name = variant.partition("-")[0]
        self.path = build / variant / file_name(variant)
        folder.mkdir(parents=True, exist_ok=True)

    def write(
        self,
        *devices: FakeDevice,
        knobs: Mapping[str, int] | None = None,
        fail: Mapping[str, int] | None = None,
    ) -> None:
        """Describe the node anew. `knobs`: numbers that the C side knows; `fail`: function to the code it answers."""
        lines: list[Sequence[object]] = []
        for d in devices:
            used = d.total - d.free - d.reserved if d.used is None else d.used
            lines.append(
                [
                    *("device", d.index, d.minor, d.card, d.in_card, d.uuid, d.model, d.pci, d.node),
                    *(d.total, d.free, used, d.reserved, d.busy, d.memory_busy),
                ]
            )
            lines += [["process", d.index, p.pid, p.host_pid, p.memory, p.busy] for p in d.processes]
            lines += [["part", d.index, p.id, p.name, p.total, p.free] for p in d.parts]
        lines += [["set", name, value] for name, value in (knobs or {}).items()]
        lines += [["fail", name, code] for name, code in (fail or {}).items()]
        draft = self.folder / f".{secrets.token_hex(6)}"
        draft.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
        draft.rename(self.folder / self.name)

    def unload_driver(self) -> None:
        """No driver any more; `write` brings it back."""
        (self.folder / self.name).unlink()

    def hang(self, function: str) -> None:
        """Let each call of the function block until `release`."""
        (self.folder / f"{self.name}.hang.{function}").touch()

    def release(self) -> None:
        """Let go of every call that hangs."""
        for switch in self.folder.glob(f"{self.name}.hang.*"):
            switch.unlink(missing_ok=True)
