"""
`make bench-peers`: gpusteward beside nvitop-exporter and beside the floors, on one fake driver. Figures, no verdict.

In: sizes such as `8x32`, `--seconds` of each program. Out: a table in Markdown on standard output.
Law: one program at a time, all of them on one node, one round and one compressed scrape a second. Each is started
anew and measured in every turn, so that other work on the machine meets all alike. CPU time is the process's own;
the fake driver's share is in it. Ours has the packages of the image (`shipped`).
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench import shipped
from bench.node import Size, running
from bench.pages import in_use
from bench.usage import cpu_seconds, memory
from daemon.running import Daemon
from driver.build import build
from driver.node import FakeNode

PEER = "nvitop-exporter==1.7.2"
SIZES = (Size(8, 8), Size(8, 32), Size(8, 128))
WARM = 12
"""Scrapes before the first figure: caches are warm then, and the processes no longer young."""
ACCEPT = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}
LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")
HERE = Path(__file__).parent
FLAGS = ("--devices=nvml", "--sampling.interval=1s", "--node.host-root=/", "--log.format=json")

SENT = 190
"""Bytes for each process in a compressed page of ours, with 64 processes on the node."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figures:
    """CPU in per cent of a core; scrapes in milliseconds, sorted; the page in kB, uncompressed if it came so."""

    cpu: float
    scrapes: Sequence[float]
    rss_mb: float
    page_kb: float

    @property
    def p50(self) -> float:
        """The median scrape."""
        return statistics.median(self.scrapes) if self.scrapes else 0.0

    @property
    def p99(self) -> float:
        """The scrape that one in a hundred exceeds."""
        return self.scrapes[math.ceil(len(self.scrapes) * 0.99) - 1] if self.scrapes else 0.0

    @property
    def scraped(self) -> str:
        """The columns that a program without a page leaves empty."""
        return f"{self.p50:.1f} ms | {self.p99:.1f} ms | {self.page_kb:.0f} kB" if self.scrapes else " |  | "


def together(turns: Sequence[Figures]) -> Figures:
    """Put equally long turns of one program together; RSS is the most of them."""
    return Figures(
        statistics.mean(turn.cpu for turn in turns),
        sorted(scrape for turn in turns for scrape in turn.scrapes),
        max(turn.rss_mb for turn in turns),
        turns[-1].page_kb,
    )


def environment(node: FakeNode) -> dict[str, str]:
    """
    Return the variables that all programs are given.

    They load the fake driver, whose calls cost next to nothing, and hide the bundle of certificate authorities.
    """
    return {**node.environment(), "FAKE_NVML_STILL": "1", **shipped.ENVIRONMENT}


class Scraper:
    """
    Scrapes on one connection if the program keeps it open, as Prometheus does.

    A bare socket, so that the program is measured: http.client took 0.3 ms more of 1.35.
    """

    def __init__(self, host: str) -> None:
        name, _, port = host.partition(":")
        self._address = (name, int(port))
        self._request = "".join(
            (
                f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n",
                *(f"{key}: {value}\r\n" for key, value in ACCEPT.items()),
                "\r\n",
            )
        ).encode()
        self._kept: socket.socket | None = None

    def __call__(self) -> bytes:
        """Return the page, still compressed if it came so. Raises OSError if no whole answer came."""
        connection = self._kept or socket.create_connection(self._address, timeout=30)
        self._kept = None
        connection.sendall(self._request)
        answer, head, end = bytearray(), b"", 0
        while (not end or len(answer) < end) and (part := connection.recv(1 << 16)):
            answer += part
            if not end and (at := answer.find(b"\r\n\r\n")) >= 0:
                head = bytes(answer[:at])
                end = at + 4 + int(length[1]) if (length := LENGTH.search(head)) else sys.maxsize
        if b" 200 " not in head[:13] or len(answer) < end < sys.maxsize:
            connection.close()
            raise ConnectionResetError(f"expected a whole page with status 200, got {bytes(answer[:40])!r}")
        if head.startswith(b"HTTP/1.1") and len(answer) == end:
            self._kept = connection
        else:
            connection.close()
        return bytes(answer[len(head) + 4 :])

    def text(self) -> bytes:
        """Return the page as text."""
        body = self()
        return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def until(made: Callable[[], T], what: str) -> T:
    """Wait for something true; errors of a server that does not listen yet count as false."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if found := made():
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(what)


def measured(pid: int, scraper: Scraper | None, setting: Setting) -> Figures:
    """Scrape once a second for so long, after some scrapes that are not counted."""
    with in_use(pid, os.getpid()) if setting.in_use else nullcontext():
        return _measured(pid, scraper, setting.seconds)


def _measured(pid: int, scraper: Scraper | None, seconds: float) -> Figures:
    took: list[float] = []
    began, due = 0.0, time.monotonic()
    for number in range(-WARM, int(seconds)):
        if number == 0:
            took, began = [], cpu_seconds(pid)
        if scraper is not None:
            first = time.perf_counter()
            scraper()
            took.append(1000 * (time.perf_counter() - first))
        due += 1
        time.sleep(max(0.0, due - time.monotonic()))
    cpu = (cpu_seconds(pid) - began) / int(seconds)
    page = len(scraper.text()) if scraper else 0
    return Figures(100 * cpu, sorted(took), memory(pid).rss, page / 1000)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all programs of a comparison are given: node, names, processes, time; and if pages are kept in use."""

    node: FakeNode
    names: Path
    processes: int
    seconds: float
    in_use: bool = False


def ours(setting: Setting, *command: str | Path, mode: str = "observe") -> Figures:
    """Measure a daemon of ours."""
    flags = (*FLAGS, f"--names.file={setting.names}", *([f"--mode={mode}"] if mode else []))
    variables = environment(setting.node) | {"PYTHONPATH": str(HERE.parent)}
    with Daemon(*flags, env=variables, command=command) as daemon:
        daemon.until(lambda s: s["processes"]["container"] == setting.processes or None, "a complete round")
        return measured(daemon.process.pid, Scraper(daemon.url.removeprefix("http://")), setting)


def counterless(setting: Setting) -> Figures:
    """Measure the exporter without its counters of use over time."""
    return ours(setting, shipped.programs() / "python", "-m", "bench.without_counters", mode="")


def observing(setting: Setting) -> Figures:
    """Measure the program with its defaults."""
    return ours(setting, shipped.programs() / "gpusteward", "run")


def judging(setting: Setting) -> Figures:
    """Measure the policy, which judges every container of the node."""
    return ours(setting, shipped.programs() / "gpusteward", "run", mode="dry-run")


def nvitop(setting: Setting) -> Figures:
    """Measure nvitop-exporter."""
    command = (peer(), "--bind-address=127.0.0.1", "--port=18000", "--interval=1")
    with ended(subprocess.Popen(command, env=os.environ | environment(setting.node), stdout=subprocess.DEVNULL)) as one:
        scraper = Scraper("127.0.0.1:18000")
        until(lambda: scraper.text().count(b"process_gpu_memory_MiB{") >= setting.processes, "all processes")
        return measured(one.pid, scraper, setting)


def floor(setting: Setting) -> Figures:
    """Measure the bare loop."""
    command = (sys.executable, HERE / "floor.py", "1")
    with ended(subprocess.Popen(command, env=os.environ | environment(setting.node), stdout=subprocess.PIPE)) as one:
        assert one.stdout is not None and one.stdout.readline()
        return measured(one.pid, None, setting)


def bare_socket(setting: Setting) -> Figures:
    """Measure a scrape of bytes that need no work."""
    command = (sys.executable, HERE / "bare_socket.py", str(SENT * setting.processes))
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE)) as one:
        assert one.stdout is not None
        return measured(one.pid, Scraper(f"127.0.0.1:{int(one.stdout.readline())}"), setting)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End it at the end."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def cache() -> Path:
    """Where built and installed programs stay."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusteward"


def peer() -> Path:
    """Install nvitop-exporter into an environment of its own, once."""
    made = cache() / f"peers-{PEER}"
    if not (program := made / "bin/nvitop-exporter").exists():
        subprocess.run((sys.executable, "-m", "venv", made), check=True)
        subprocess.run((made / "bin/pip", "install", "-q", "--disable-pip-version-check", PEER), check=True)
    return program


PROGRAMS: dict[str, tuple[str, Callable[[Setting], Figures]]] = {
    "floor": ("the floor", floor),
    "socket": ("a bare socket", bare_socket),
    "nvitop": (PEER.replace("==", " "), nvitop),
    "ours": ("observing, without counters", counterless),
    "counters": ("observing", observing),
    "policy": ("mode dry-run", judging),
}
RATIOS = {"nvitop": ("floor", "socket"), "floor": ("socket",)}
"""What a program's CPU is compared with, and the programs for which that would say nothing."""
COLUMNS = ("GPUs x processes", "program", "CPU", "of nvitop's", "of the floor", "scrape p50", "p99", "page", "RSS")


def main() -> int:
    """Measure each size and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("sizes", nargs="*", help="GPUs x processes on each, such as 8x32")
    parser.add_argument("--seconds", type=int, default=100, help="of each program, in all turns together")
    parser.add_argument("--turns", type=int, default=4, help="times that each program is measured")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs to measure, with commas between them")
    parser.add_argument(
        "--in-use", action="store_true", help="read all pages all the time, where idle ones are slow (bench/pages.py)"
    )
    chosen = parser.parse_args()
    if chosen.turns < 1 or chosen.seconds < 1 or chosen.seconds % chosen.turns:
        parser.error(f"--seconds: expected a multiple of --turns, got {chosen.seconds} in {chosen.turns} turns")
    library, programs = build(cache()), [key for key in PROGRAMS if key in chosen.only.split(",")]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    for size in [Size(*map(int, size.split("x"))) for size in chosen.sizes] or SIZES:
        with (
            tempfile.TemporaryDirectory() as folder,
            running(size, Path(folder), library, limit="1Gi") as (node, names),
        ):
            setting = Setting(node, names, size.gpus * size.processes, chosen.seconds / chosen.turns, chosen.in_use)
            turns = [{key: PROGRAMS[key][1](setting) for key in programs} for _ in range(chosen.turns)]
        found = {key: together([turn[key] for turn in turns]) for key in programs}
        for key, f in found.items():
            ratios = (
                f"{f.cpu / found[to].cpu:.2f}" if to in found and key not in no else "" for to, no in RATIOS.items()
            )
            print(
                f"| {size} | {PROGRAMS[key][0]} | {f.cpu:.2f} % | {' | '.join(ratios)} | {f.scraped} | "
                f"{f.rss_mb:.0f} MB |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
