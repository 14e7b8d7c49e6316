"""Fixtures: fake vendor libraries, and device sources on them."""

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from exporter.devices.session import LibrarySource
from exporter.devices.thread import DEADLINE
from exporter.devices.vendor_libs import LIBRARIES, devices
from exporter.model import ALL_ON, Off
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
        off: Off = ALL_ON,
    ) -> LibrarySource:
        row = replace(LIBRARIES[library.name], libraries=(str(library.path),), nodes=patterns)
        make = partial(devices, row, proc, dev or tmp_path / "dev", clock, off=off)
        source = LibrarySource(library.name, make, deadline=deadline, monotonic=monotonic)
        opened.append((library, source))
        return source

    yield open_source
    for library, source in opened:
        library.release()
        await source.close()
