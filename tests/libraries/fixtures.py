"""Fixtures: fake vendor libraries, and device sources on them."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from exporter.devices.vendor_libs import KINDS
from exporter.devices.vendor_libs.cndev import Cndev
from exporter.devices.vendor_libs.dcmi import Dcmi
from exporter.devices.vendor_libs.holders import OpenNodes
from exporter.devices.vendor_libs.mtml import Mtml
from exporter.devices.vendor_libs.nvml_like import NvmlLike
from exporter.devices.vendor_libs.read_device import Reader
from exporter.devices.vendor_libs.rows import ROWS
from exporter.devices.vendor_libs.rsmi import Rsmi
from exporter.devices.vendor_libs.source import DEADLINE, LibrarySource
from libraries.build import build
from libraries.fake import FakeLibrary

Install = Callable[[str], FakeLibrary]
Open = Callable[..., LibrarySource]


@pytest.fixture(scope="session")
def libraries_build() -> Path:
    """The compiled libraries, cached by the hash of their sources across runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return build(Path(cache) / "gpusteward")


@pytest.fixture
def install(tmp_path: Path, libraries_build: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Give a library by its variant; without devices until it is written."""
    monkeypatch.setenv("FAKE_LIBRARIES", str(tmp_path / "fake-libraries"))

    def installed(variant: str) -> FakeLibrary:
        library = FakeLibrary(tmp_path / "fake-libraries", libraries_build, variant)
        library.write()
        return library

    return installed


def reader_of(library: FakeLibrary, beat: Callable[[str], None], nodes: OpenNodes) -> Reader:
    """Make the reader of a library, which loads it from where it was compiled."""
    names = (str(library.path),)
    match library.name:
        case "dcmi":
            return Dcmi(beat, names)
        case "cndev":
            return Cndev(beat, names)
        case "mtml":
            return Mtml(beat, nodes, names)
        case "rsmi":
            return Rsmi(beat, names)
        case name:
            kind = KINDS.get(name, NvmlLike)
            return kind(next(row for row in ROWS if row.name == name), beat, names)


@pytest.fixture
async def sources(tmp_path: Path) -> AsyncIterator[Open]:
    """Open sources on libraries; calls that a test left hanging are released, so that the thread can end."""
    opened: list[tuple[FakeLibrary, LibrarySource]] = []

    def open_source(
        library: FakeLibrary,
        *,
        deadline: float = DEADLINE,
        proc: Path = Path("/proc"),
        dev: Path | None = None,
        patterns: tuple[str, ...] = ("fake*",),
        clock: Callable[[], float] = lambda: 1000.0,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> LibrarySource:
        nodes = OpenNodes(proc, dev or tmp_path / "dev", patterns)
        source = LibrarySource(
            library.name,
            lambda beat, nodes: reader_of(library, beat, nodes),
            nodes,
            deadline=deadline,
            clock=clock,
            monotonic=monotonic,
        )
        opened.append((library, source))
        return source

    yield open_source
    for library, source in opened:
        library.release()
        await source.close()
