"""
Reads a recording, one round at a time.

What comes in: a file, plain or compressed (recognised by its first bytes, not its name). What goes out: the header,
then rounds; or `RecordingError` with file and line.

The rule: a file may hold anything, and is never read into memory as a whole. A writer that was killed leaves a torn
end: the last round is lost, and `torn` reports it. Any other error is refused, with its line.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from exporter.base.text_files import UnreadableError, opened, reason, show
from exporter.recording.answers import RecordedRound
from exporter.recording.lines import (
    FORMAT,
    LONGEST,
    SHELF,
    Header,
    Line,
    RecordingError,
    RoundLine,
    Shelf,
)
from exporter.recording.possible import impossible

_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
_SHOWN = 500
"""Characters of a refusal: a stranger's text in it may have millions."""
_GZIP = 16 + zlib.MAX_WBITS
MOST = 16 * SHELF
"""The most parts that may come without a round that refers to them."""


class _Version(msgspec.Struct, tag="header", tag_field="line"):
    """The part of a header that every format has."""

    gpusteward_recording: int
    program: str = "an unknown version"


_VERSION = msgspec.json.Decoder(_Version)
_HEADER = msgspec.json.Decoder(Header)
_LINE: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_T = TypeVar("_T")


class Reading:
    """
    An open recording; a context manager, and an iterator over its rounds.

    Attributes:
        header: the first line.
        torn: what is missing at the end, in words; empty if nothing. Known once the last round was read.

    """

    def __init__(self, path: Path) -> None:
        """Open the file and read its header. Raises RecordingError."""
        self._path = path
        self.torn = ""
        self._at = 0
        self._shelf = Shelf()
        try:
            self._file = opened(path)
        except UnreadableError as error:
            raise RecordingError(f"{path}: {error}") from error
        self._lines = self._split()
        try:
            self.header = self._head()
        except RecordingError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RecordedRound]:
        return self

    def __next__(self) -> RecordedRound:
        """Read on to the next round. Raises RecordingError."""
        for text in self._lines:
            line = self._decoded(_LINE, text, "a round or a part of one, as gpusteward writes it")
            if wrong := impossible(line):
                raise self._wrong(wrong)
            if isinstance(line, RoundLine):
                try:
                    self._shelf.after(line)
                except KeyError as error:
                    raise self._wrong(f"the round names part {error}, which no line before it holds") from None
                if not line.fits(self._shelf):
                    raise self._wrong("the round names a part of another kind")
                return line.recorded(self._shelf)
            if isinstance(line, Header):
                raise self._wrong("a second header; each recording is a file of its own")
            self._shelf[line.number] = line.value
            if len(self._shelf) > MOST:
                raise self._wrong(f"more than {MOST} parts without a round that names them")
        raise StopIteration

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _head(self) -> Header:
        text = next(self._lines, None)
        if text is None:
            what = f"only {self.torn}" if self.torn else "an empty file"
            raise RecordingError(f"{self._path}: expected a recording, got {what}")
        start = show(text[:200].decode("utf-8", "backslashreplace"))
        version = self._decoded(_VERSION, text, "the header of a recording", got=start)
        if version.gpusteward_recording != FORMAT:
            raise self._wrong(
                f"expected format {FORMAT}, got format {version.gpusteward_recording}, "
                f"which gpusteward {version.program} wrote: read it with that version or a later one"
            )
        return self._decoded(_HEADER, text, "the header of a recording")

    def _decoded(self, decoder: msgspec.json.Decoder[_T], text: bytes, what: str, *, got: str | None = None) -> _T:
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f": {error}" if got is None else f", got {got}"
            raise self._wrong(f"expected {what}{why}") from error

    def _split(self) -> Iterator[bytes]:
        """Yield whole lines; text after the last one sets `torn`."""
        rest = bytearray()
        for chunk in self._chunks():
            rest += chunk
            if b"\n" in chunk:
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    self._at += 1
                    yield bytes(line)
            if len(rest) > LONGEST:
                self._at += 1
                raise self._wrong(f"a line of more than {LONGEST} bytes")
        if rest:
            self.torn = f"line {self._at + 1}, which is torn off after {len(rest)} bytes"

    def _chunks(self) -> Iterator[bytes]:
        chunk = self._read()
        gzip = zlib.decompressobj(_GZIP) if chunk.startswith(_MAGIC) else None
        while chunk:
            if gzip is None:
                yield chunk
            while gzip is not None and chunk and not gzip.eof:
                try:
                    yield gzip.decompress(chunk, _CHUNK)  # bounded: a megabyte of gzip may hold a gigabyte
                except zlib.error as error:
                    raise RecordingError(f"{self._path}: damaged after line {self._at}: {error}") from error
                chunk = gzip.unconsumed_tail
            chunk = self._read()
        if gzip is not None and not gzip.eof:
            yield gzip.flush()
            self.torn = "the end of the compressed file"

    def _read(self) -> bytes:
        try:
            return self._file.read(_CHUNK)
        except (OSError, ValueError) as error:
            raise RecordingError(f"{self._path}: cannot be read: {reason(error)}") from error

    def _wrong(self, what: str) -> RecordingError:
        return RecordingError(f"{self._path}:{self._at}: {what if len(what) <= _SHOWN else what[:_SHOWN] + '...'}")
