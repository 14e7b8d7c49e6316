"""`gpusteward explain NAMESPACE/POD`: a real daemon on the simulated node is asked, and everything that is none."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from daemon.commands import complaint, gpusteward
from daemon.running import Daemon, until
from daemon.test_explain import PROMISED
from serving.certificates import Authority

pytestmark = pytest.mark.daemon

POD = "team-vision/anna-notebook-0"
LIMIT = "nvidia.com/container.notebook.gpu-memory.limit"
GIB = 2**30


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Run one daemon on the simulated node, for all tests that change nothing."""
    with Daemon("--devices=simulated", "--log.format=json") as running:
        running.snapshot()
        yield running


def explain(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `gpusteward explain` to its end."""
    return gpusteward("explain", *words, **env)


def failed(ended: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Check that this ended with one line on standard error; return it."""
    return complaint("explain", ended, code)


def test_a_running_pod_is_explained(daemon: Daemon) -> None:
    """For people: whose limit by which key, candidate by candidate, and what is used now."""
    ended = explain(POD, "--url", daemon.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == f"pod {POD}"
    assert lines[1].startswith("  container notebook on GPU-") and lines[1].endswith(": 16 GiB")
    assert f"    * gpusteward annotation {LIMIT} = '16Gi': 16 GiB (trust user): taken" in lines
    used = next(number for number, line in enumerate(lines) if line.startswith("  uses, as of "))
    assert lines[used + 1].startswith(lines[1].rpartition(":")[0].replace("  container", "    container"))


def test_scripts_get_the_document(daemon: Daemon) -> None:
    """The list of limits is that of a file, without `object`; what is used is the snapshot's."""
    ended = explain(POD, "--json", GPUSTEWARD_URL=daemon.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    (entry,) = found["limits"]
    assert set(entry) == PROMISED - {"object"}
    assert (entry["namespace"], entry["pod"], entry["limit_bytes"]) == (*POD.split("/"), 16 * GIB)
    assert (found["version"], found["policy"], found["notes"]) == (1, None, [])
    (container,) = found["containers"]
    assert (container["container"], container["memory_limit_bytes"]) == ("notebook", 16 * GIB)
    assert container["memory_used_bytes"] > 0
    assert "text" not in found
    status, body = daemon.get("/api/v1/explain?namespace=team-vision&pod=anna-notebook-0")
    assert (status, json.loads(body)["limits"]) == (200, found["limits"])


def test_a_pod_of_another_node(daemon: Daemon) -> None:
    """No such pod here: exit code 1, what is near, and that a daemon knows its own node."""
    said = failed(explain("team-vision/ana-notebook-0", "--url", daemon.url))
    assert "no pod team-vision/ana-notebook-0 on node test-node; similar names: team-vision/anna-notebook-0" in said
    assert "knows only the pods of its own node" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("llm",), "llm is not NAMESPACE/POD"),
        (("a/b/c",), "a/b/c is not NAMESPACE/POD"),
        (("/b",), "/b is not NAMESPACE/POD"),
        (("a/b", "--node", "node.yaml"), "--node and --config need -f"),
        (("a/b", "--config", "config.yaml"), "--node and --config need -f"),
        (("a/b", "--url", "node-1:9478"), "--url: this is no URL of a daemon"),
        (("a/b", "--url", "http://node-1:port"), "--url: the URL has no valid host and port"),
        (("a/b", "--url", ""), "--url: this is no URL of a daemon"),
        (("a/b", "--url", "http://node-1:9478/?x"), "--url: the URL has a query"),
        (("a/b", "--url", "ftp://u:hunter2@node-1"), "--url: this is no URL of a daemon"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], told: str) -> None:
    """Exit code 2, before any request is sent; a password is not repeated."""
    said = failed(explain(*words), 2)
    assert told in said
    assert "hunter2" not in said


def test_a_url_of_the_environment_is_named() -> None:
    """The error names the variable that has the wrong URL."""
    assert "GPUSTEWARD_URL: this is no URL of a daemon" in failed(explain("a/b", GPUSTEWARD_URL="node-1"), 2)


def test_nobody_is_there() -> None:
    """A port that no program listens on, and a host name that does not exist."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert f"http://127.0.0.1:{port}: connection refused" in failed(explain("a/b", "--url", f"http://127.0.0.1:{port}"))
    said = failed(explain("a/b", "--url", "http://u:hunter2@no-such-host.invalid:9478"))
    assert "http://no-such-host.invalid:9478: " in said
    assert "hunter2" not in said


def test_without_the_api_nothing_is_explained() -> None:
    """`web.api: false` is told apart from a pod that is not there."""
    with Daemon("--devices=simulated", "--no-web.api", "--log.format=json") as running:
        said = failed(explain(POD, "--url", running.url))
    assert "web.api is false there" in said


def test_a_password_and_a_certificate(tmp_path: Path) -> None:
    """Behind TLS and a password: neither is passed over, and each refusal says what is missing."""
    Authority(tmp_path)
    web = tmp_path / "web.yaml"
    hashed = bcrypt.hashpw(b"p@ss:word", bcrypt.gensalt(4)).decode()
    tls = {"cert_file": "server.pem", "key_file": "server.key"}
    web.write_text(json.dumps({"tls_server_config": tls, "basic_auth_users": {"reader": hashed}}))
    trusted = {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    with Daemon("--devices=simulated", f"--web.config.file={web}", "--log.format=json") as running:
        where = running.url.removeprefix("https://")
        assert running.url.startswith("https://")
        with_password = f"https://reader:p%40ss%3Aword@{where}"

        def said(url: str, **env: str) -> str:
            return failed(explain(POD, "--url", url, **env))

        assert "its certificate is not trusted" in said(with_password)
        assert "needs a name and a password" in said(running.url, **trusted)
        wrong = said(f"https://reader:hunter2@{where}", **trusted)
        assert "does not accept this name and password" in wrong
        assert "hunter2" not in wrong
        assert "try https://" in said(f"http://{where}")

        def through() -> str | None:
            ended = explain(POD, GPUSTEWARD_URL=with_password, **trusted)
            assert "no round has ended yet" in ended.stderr or ended.returncode == 0, ended.stderr
            return ended.stdout or None

        assert until(through, "an explanation", running).startswith(f"pod {POD}\n")


@contextmanager
def stranger(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve the same answer to each request; yields the URL, and the headers of the requests."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join(10)


def test_an_evicted_pod_that_is_gone_was_evicted_by_this_daemon() -> None:
    """The error says when and why, and where the Events are; not that the pod is on another node."""
    error = "no pod team-a/greedy on node n; this daemon acted on it, gpusteward evicted it"
    body = json.dumps({"error": error, "near": [], "actions": [{"text": "x"}]}).encode()
    with stranger(404, body) as (url, _):
        said = failed(explain("team-a/greedy", "--url", url))
    assert error in said
    assert "kubectl -n team-a get events --field-selector involvedObject.name=greedy" in said
    assert "own node" not in said


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"<html>hello", "answers something else than an explanation"),
        (200, b"{}", "answers something else than an explanation"),
        (200, b"[" * 100_000, "answers something else than an explanation"),
        (200, b'{"version": 1, "program": "x", "text": "\xff"}', "answers something else than an explanation"),
        (404, b"404 page not found", "answers with status 404"),
        (500, b"", "answers with status 500"),
        (503, b'{"error": "no round has ended yet"}', "no round has ended yet"),
        (200, b"x" * (17 << 20), "more than 16777216 bytes"),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else "",
)
def test_what_is_no_gpusteward(status: int, body: bytes, told: str) -> None:
    """Whatever else answers there is named in one line, without a traceback."""
    with stranger(status, body) as (url, _):
        assert told in failed(explain("a/b", "--url", url))


def test_what_is_no_http() -> None:
    """Something that speaks first, in another language."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            taken, _ = listening.accept()
            with taken:
                taken.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                taken.recv(65536)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        said = failed(explain("a/b", "--url", f"http://127.0.0.1:{listening.getsockname()[1]}"))
        thread.join(10)
    assert "gives no HTTP answer" in said


def test_a_password_goes_nowhere_else() -> None:
    """A redirection is not followed, and a proxy of the environment not used: both would get to see the password."""
    with ExitStack() as stack:
        other, seen = stack.enter_context(stranger(200, b"{}"))
        url, asked = stack.enter_context(stranger(302, b"", Location=f"{other}/api/v1/explain"))
        named = url.replace("http://", "http://reader:hunter2@")
        assert "redirects to another address" in failed(
            explain("a/b", "--url", named, http_proxy=other, HTTP_PROXY=other)
        )
    assert seen == []
    assert base64.b64decode(asked[0]["Authorization"].removeprefix("Basic ")) == b"reader:hunter2"


def test_the_terminal_is_left_alone() -> None:
    """What answers may send anything for people to read; no escape sequence of it reaches them."""
    body = json.dumps({"version": 1, "program": "x", "text": "pod a/b\n  \x1b[2Jgone\n"}).encode()
    with stranger(200, body) as (url, _):
        ended = explain("a/b", "--url", url)
    assert (ended.returncode, ended.stdout) == (0, "pod a/b\n  \\x1b[2Jgone\n")
