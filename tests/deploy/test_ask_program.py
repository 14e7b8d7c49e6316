"""
The program of `helm test`, before servers that answer as daemons do.

In: pods with an address, and what their daemon answers. Out: what is printed, and the exit code. Law: a release passes
only if each of its daemons is ready and serves metrics.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from deploy.chart import CHART

Answers = dict[str, tuple[int, str]]
GOOD: Answers = {"/readyz": (200, "ok"), "/metrics": (200, 'gpusteward_build_info{version="0.1.0"} 1\n')}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, which waits for no daemon."""
    spec = importlib.util.spec_from_file_location("ask", CHART / "files" / "ask.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    monkeypatch.setattr(made, "PATIENCE", 0)
    return made


@contextmanager
def daemon(answers: Answers) -> Iterator[int]:
    """Serve a daemon's answers; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = answers[self.path]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def pod(node: str, address: str = "127.0.0.1") -> dict[str, Any]:
    """A pod of the daemon; without an address it is being made."""
    return {"spec": {"nodeName": node}, "status": {"podIP": address} if address else {"phase": "Pending"}}


def asked(program: ModuleType, patch: pytest.MonkeyPatch, answers: Answers, *pods: dict[str, Any], **told: str) -> int:
    """Run it before such daemons; `told`: variables in place of the usual ones."""
    with daemon(answers) as port:
        usual = {
            "READY": f"http://{{host}}:{port}/readyz",
            "METRICS": f"http://{{host}}:{port}/metrics",
            "PASSWORD": "",
        }
        for name, value in {**usual, **told}.items():
            patch.setenv(name, value)
        patch.setattr(program, "daemons", lambda: list(pods))
        return int(program.main())


def test_ready_daemons_pass(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each node."""
    assert asked(program, monkeypatch, GOOD, pod("b"), pod("a")) == 0
    assert capsys.readouterr().out == "a: ready\nb: ready\n"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (({**GOOD, "/readyz": (503, "waits for api_pending")}, pod("a")), "answers 503: waits for api_pending"),
        (({**GOOD, "/metrics": (200, "up 1\n")}, pod("a")), "/metrics has no gpusteward_build_info"),
        (({**GOOD, "/metrics": (401, "")}, pod("a")), "answers 401"),
        ((GOOD, pod("a"), pod("b", "")), "b: the pod has no address yet, phase Pending"),
        ((GOOD,), "no daemon runs: "),
    ],
)
def test_what_is_wrong_is_said(
    program: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[Any, ...],
    words: str,
) -> None:
    """The exit code is 1, and the line of the node says what its daemon answered."""
    assert asked(program, monkeypatch, *case) == 1
    assert words in capsys.readouterr().out


def test_a_daemon_that_does_not_answer_fails(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens there."""
    with daemon(GOOD) as port:
        free = port
    assert asked(program, monkeypatch, GOOD, pod("a"), READY=f"http://{{host}}:{free}/readyz") == 1
    assert "a: 127.0.0.1 does not answer: " in capsys.readouterr().out


def test_what_the_pod_cannot_ask_for_is_left_out(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A password may be asked for where there is a web config; metrics behind client certificates are not looked at."""
    closed = {**GOOD, "/metrics": (401, "")}
    assert asked(program, monkeypatch, closed, pod("a"), PASSWORD="maybe") == 0
    assert asked(program, monkeypatch, closed, pod("a"), METRICS="") == 0
    assert "its metrics want a client certificate" in capsys.readouterr().out
