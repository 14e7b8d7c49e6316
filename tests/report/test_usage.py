"""What `gpusteward report` says about a wrong address, token or file of prices, and after Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from enforcer.commands import prometheus as drawing
from exporter.history.windows import length
from report.test_report import COMMAND, Asking

CTRL_C = 130


@contextmanager
def answering(status: int, asked: Event | None = None, answer: Event | None = None) -> Iterator[str]:
    """A server with one answer to all, perhaps after an event; `asked` is set at a request, `seen` has its token."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None and answer is not None:
                asked.set()
                answer.wait(60)
            self.send_response(status if self.headers["Authorization"] in (None, "Bearer hunter2") else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answering)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        if answer is not None:
            answer.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("text", ["", "currency: EUR\n", "gpu_hour:\n"])
def test_a_file_without_prices_is_explained(tmp_path: Path, text: str) -> None:
    """The message names the key that is missing, and the page that explains it."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    told = Asking("http://127.0.0.1:1")("--prices", str(file), code=2)
    assert f"{file}: gpu_hour: this key is missing" in told and "docs/report.md explains the keys" in told


@pytest.mark.parametrize("text", ["- 1\n", "gpu_hour: [1]\n", "gpu_hour: {default: cheap}\n", "a: b: c\n"])
def test_wrong_prices_lead_to_the_page_of_prices(tmp_path: Path, text: str) -> None:
    """Not to that of the daemon's config, which has none."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    told = Asking("http://127.0.0.1:1")("--prices", str(file), code=2)
    assert str(file) in told and "docs/report.md explains the keys" in told and "config.md" not in told


@pytest.mark.parametrize("url", ["http://me:p/ss@host:9090", "http://me:12/ss@host:9090", "http://me:p#ss@host:9090"])
def test_a_password_that_has_to_be_encoded_is_explained(url: str) -> None:
    """No part of it is sent to a host of another name, and none is shown."""
    told = Asking(url)(code=2)
    assert "fix: in a name or password write / as %2F" in told and "ss" not in told.replace("password", "")


def test_a_prometheus_behind_a_path_is_a_possible_cause() -> None:
    """Status 404 says little by itself."""
    with answering(404) as url:
        told = Asking(url)(code=1)
    assert "/api/v1/query is not there" in told and "write the path into the URL" in told


def test_a_newline_after_the_token_is_left_out() -> None:
    """As a file or a Secret has one. Another wrong character is refused, with the name of the variable."""
    with answering(404) as url:
        assert "is not there" in Asking(url)(code=1, GPUSTEWARD_PROMETHEUS_TOKEN="hunter2\n")
        told = Asking(url)(code=2, GPUSTEWARD_PROMETHEUS_TOKEN="hunter2\nhunter3")
    assert "GPUSTEWARD_PROMETHEUS_TOKEN holds a character that no token has" in told and "hunter" not in told


@pytest.mark.parametrize(
    ("seconds", "text"), [(3600, "1h"), (7 * 86400, "7d"), (129_600, "1d12h"), (5400, "1h30m"), (604_799.9995, "7d")]
)
def test_a_length_is_written_as_it_is_read(seconds: float, text: str) -> None:
    """An hour is 1h, not 60m."""
    assert length(seconds) == text


@pytest.mark.parametrize("module", ["enforcer.cli", "exporter.config.arguments", "enforcer.commands.report"])
def test_ctrl_c_while_python_imports_prints_nothing(module: str) -> None:
    """Whatever module is being read then."""
    code = (
        "import sys, os, signal, importlib.abc\n"
        "class Interrupting(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == '{module}': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from importlib.metadata import entry_points\n"
        "(entry,) = entry_points(group='console_scripts', name='gpusteward')\n"
        "sys.argv = ['gpusteward', 'report']\n"
        "sys.exit(entry.load()())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (CTRL_C, "", "")


def test_ctrl_c_removes_the_progress() -> None:
    """The shell's next line begins in an empty one."""
    asked, answer = Event(), Event()
    with answering(404, asked, answer) as url:
        ours, its = pty.openpty()
        running = subprocess.Popen(
            [str(COMMAND), "report", "--prometheus", url], stdout=subprocess.DEVNULL, stderr=its, env={}
        )
        os.close(its)
        assert asked.wait(60)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == CTRL_C
        shown = os.read(ours, 65536).decode()
        os.close(ours)
    assert "answers" in shown and shown.endswith("\r\x1b[K")


@pytest.mark.parametrize("columns", [8, 20, 40, 80])
def test_the_progress_fits_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that wraps could not be removed."""
    monkeypatch.setenv("COLUMNS", str(columns))
    drawing._draw(57, 140)
    shown = capsys.readouterr().err.removeprefix("\r\x1b[K")
    assert shown and len(shown) < columns
