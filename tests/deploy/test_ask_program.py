"""
The program of `helm test`, before servers that answer as daemons do.

In: pods with an address, what their daemon answers, and what the API server answers. Out: what is printed, and the
exit code. Law: a release passes only if each of its daemons is there, is ready and serves metrics.
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
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def pod(node: str, address: str = "127.0.0.1", **status: Any) -> dict[str, Any]:
    """A pod of the daemon; without an address it is being made."""
    known = {"podIP": address} if address else {"phase": "Pending"}
    return {"metadata": {}, "spec": {"nodeName": node}, "status": {**known, **status}}


def waits(reason: str, message: str) -> dict[str, Any]:
    """The status of a pod whose container does not run."""
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


class Server:
    """The API server: these pods; a DaemonSet that wants some; Events about it."""

    def __init__(self, pods: tuple[dict[str, Any], ...], wanted: int | None, *messages: str, seen: int = 1) -> None:
        self.asked = 0
        status = {"observedGeneration": seen, "desiredNumberScheduled": len(pods) if wanted is None else wanted}
        spec = {"template": {"spec": {"nodeSelector": {"nope": "x"}}}}
        events = [{"message": one, "lastTimestamp": f"2026-01-01T00:00:0{i}Z"} for i, one in enumerate(messages)]
        self._answers: dict[str, Any] = {
            "pods": {"items": [*pods]},
            "daemonsets/gpusteward": {"metadata": {"generation": 1}, "spec": spec, "status": status},
            "events": {"items": events[::-1]},
        }

    def __call__(self, _group: str, what: str, **query: str) -> Any:
        self.asked += 1
        if what == "events":
            about = "involvedObject.kind=DaemonSet,involvedObject.name=gpusteward,type=Warning"
            assert query == {"fieldSelector": about}
        return self._answers[what]


def asked(
    program: ModuleType,
    patch: pytest.MonkeyPatch,
    answers: Answers,
    *pods: dict[str, Any],
    server: Server | None = None,
    **told: str,
) -> int:
    """Run it before such daemons; `told`: variables in place of the usual ones."""
    with daemon(answers) as port:
        usual = {
            "READY": f"http://{{host}}:{port}/readyz",
            "METRICS": f"http://{{host}}:{port}/metrics",
            "PASSWORD": "",
            "NAMESPACE": "gpus",
            "DAEMONSET": "gpusteward",
            "SELECTOR": "a=b",
        }
        for name, value in {**usual, **told}.items():
            patch.setenv(name, value)
        patch.setattr(program, "api", server or Server(pods, None))
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
        ((GOOD, pod("a"), pod("b", "")), "b: the pod has no address yet, phase Pending\n"),
        (
            (GOOD, pod("b", "", **waits("ImagePullBackOff", "no such image"))),
            "b: the pod has no address yet, phase Pending, ImagePullBackOff: no such image",
        ),
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


NO_NODE = 'no node fits: by node selector {"nope": "x"} and affinity, or for a taint that the pods do not tolerate'
BASELINE = 'pods "gpusteward-" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)'
NO_CLASS = 'pods "gpusteward-" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
DESCRIBE = "kubectl -n gpus describe daemonset gpusteward"


@pytest.mark.parametrize(
    ("server", "words", "fix"),
    [
        (Server((), 0), NO_NODE, "compare `kubectl get nodes --show-labels` with the values"),
        (
            Server((), 1, "older", BASELINE),
            f"0 of 1 pods exist: {BASELINE}",
            "kubectl label --overwrite namespace gpus pod-security.kubernetes.io/enforce=privileged",
        ),
        (Server((pod("a"),), 2, NO_CLASS), f"1 of 2 pods exist: {NO_CLASS}", DESCRIBE),
        (Server((), 3), "0 of 3 pods exist: no Event says why", DESCRIBE),
        (Server((), 0, seen=0), "the cluster has not looked at it yet", "repeat the test"),
    ],
)
def test_a_daemon_that_is_not_there_has_its_cause(
    program: ModuleType, capsys: pytest.CaptureFixture[str], server: Server, words: str, fix: str
) -> None:
    """As the DaemonSet's status and its newest Event say: no node fits, or the API server refuses the pods."""
    with pytest.MonkeyPatch.context() as patch:
        assert asked(program, patch, GOOD, server=server) == 1
    *_, what, remedy = capsys.readouterr().out.splitlines()
    assert what == f"DaemonSet gpusteward: {words}" and remedy.startswith(f"fix: {fix}")


def test_where_no_node_fits_nothing_is_waited_for(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has looked at the DaemonSet as it is, and no time makes a node fit."""
    server = Server((), 0)
    monkeypatch.setattr(program, "PATIENCE", 3600)
    assert asked(program, monkeypatch, GOOD, server=server) == 1
    assert server.asked == 2, "pods and DaemonSet, once"


def test_what_the_pod_cannot_ask_for_is_left_out(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A password may be asked for where there is a web config; metrics behind client certificates are not looked at."""
    closed = {**GOOD, "/metrics": (401, "")}
    assert asked(program, monkeypatch, closed, pod("a"), PASSWORD="maybe") == 0
    assert asked(program, monkeypatch, closed, pod("a"), METRICS="") == 0
    assert "its metrics want a client certificate" in capsys.readouterr().out
