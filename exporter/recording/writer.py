"""
Writes a recording.

What comes in: a header, then round after round. What goes out: a file, compressed if its name ends in `.gz`.

The rule: after each round the file can be read, also if this process dies. A round is written whole or not at all: if
the disk is full, the file ends with the round before.
"""

import contextlib
import os
import zlib
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from exporter.base.text_files import reason
from exporter.model import GpuSample, Inventory, Owner
from exporter.recording.answers import HostRead, RecordedRound
from exporter.recording.lines import (
    Header,
    HostPart,
    InventoryPart,
    Part,
    ProcessesPart,
    RecordingError,
    RoundGpu,
    RoundLine,
    Shelf,
    XidsPart,
)

GZIP = 16 + zlib.MAX_WBITS
"""zlib's number for the gzip format. The stream is flushed after each round, which costs a few bytes."""
LEVEL = 6


class Writing:
    """
    An open recording; a context manager that ends it.

    `inventory`, `host` and `owner` return the parts of an answer, or of a cgroup's owner, that are written. `inventory`
    and `host` are called once for each changed answer.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        *,
        inventory: Callable[[Inventory], Inventory] = lambda whole: whole,
        host: Callable[[HostRead], HostRead] = lambda whole: whole,
        owner: Callable[[Owner], Owner] = lambda whole: whole,
    ) -> None:
        """Create the file, readable only by its owner. Raises RecordingError, also if the file exists already."""
        self._path = path
        self._inventory = inventory
        self._host = host
        self._owner = owner
        self._shelf = Shelf()
        self._newest: dict[Hashable, int] = {}
        self._numbers = 0
        self._encode = msgspec.json.Encoder().encode
        self._gzip = zlib.compressobj(LEVEL, wbits=GZIP) if path.suffix == ".gz" else None
        self.rounds = 0
        self.size = 0
        """Bytes on disk."""
        try:
            # A device or a pipe (/dev/stdout) may be written to. An existing file may be evidence: it is not replaced.
            special = path.exists() and not path.is_file()
            flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if special else os.O_CREAT | os.O_EXCL)
            self._file = os.open(path, flags, 0o600)
            os.set_blocking(self._file, True)  # only open() must not wait for the reader of a pipe
        except FileExistsError:
            raise RecordingError(f"{path} exists already", fix="remove the file, or name another with -o") from None
        except (OSError, ValueError) as error:
            raise self._refused(error) from error
        try:
            self._write([header])
        except RecordingError:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def add(self, recorded: RecordedRound) -> None:
        """Write one round. Raises RecordingError; the file then ends with the round before."""
        parts: list[Part] = []

        def named(key: Hashable, value: Any, part: Callable[[int, Any], Part]) -> int:
            number = self._newest.get(key)
            if number is None or not (self._shelf[number] is value or self._shelf[number] == value):
                self._numbers += 1
                number = self._newest[key] = self._numbers
                self._shelf[number] = value
                parts.append(part(number, value))
            return number

        def inventory(number: int, value: Inventory) -> Part:
            return InventoryPart.of(number, self._inventory(value))

        def host(read: HostRead) -> int:
            return named(read.question, read, lambda number, value: HostPart(number, self._host(value)))

        def gpu(sample: GpuSample) -> RoundGpu:
            lists = None if sample.processes is None else named(sample.gpu.uuid, sample.processes, ProcessesPart)
            cgroups = tuple(replace(memory, owner=self._owner(memory.owner)) for memory in sample.cgroups)
            return RoundGpu.of(replace(sample, cgroups=cgroups, unseen=tuple(map(self._owner, sample.unseen))), lists)

        line = RoundLine.of(
            recorded,
            inventory=named("inventory", recorded.inventory, inventory),
            hosts=list(map(host, recorded.hosts)),
            samples=list(map(gpu, recorded.samples)),
            xid_errors=named("xids", recorded.xid_errors, XidsPart) if recorded.xid_errors else None,
        )
        self._shelf.after(line)
        self._newest = {key: number for key, number in self._newest.items() if number in self._shelf}
        self._write([*parts, line])
        self.rounds += 1

    def close(self) -> None:
        """End the file. Raises RecordingError if its end cannot be written."""
        if self._file < 0:
            return
        try:
            if self._gzip is not None:
                self._append(self._gzip.flush(zlib.Z_FINISH))
        finally:
            os.close(self._file)
            self._file = -1

    def _write(self, lines: list[Any]) -> None:
        try:
            text = b"".join(self._encode(line) + b"\n" for line in lines)
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
            raise RecordingError(
                f"{self._path}: a round cannot be written as JSON",
                cause=str(error),
                fix="report it as a bug, with this message",
            ) from error
        if self._gzip is not None:
            text = self._gzip.compress(text) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        self._append(text)

    def _append(self, text: bytes) -> None:
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a pipe; the reader drops a torn end as well
                os.ftruncate(self._file, self.size)
            self._gzip = None  # the stream is broken: do not write its end
            raise self._refused(error) from error
        self.size += len(text)

    def _refused(self, error: OSError | ValueError) -> RecordingError:
        return RecordingError(
            f"{self._path}: cannot be written: {reason(error)}", fix="name with -o a file in a folder with free space"
        )
