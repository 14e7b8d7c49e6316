"""
Strangers attack the port of a daemon that has 128 MiB: it lives, its probes answer, and its rounds go on.

What comes in: the attacks of `daemon.floods`, each in a process of its own, from eight addresses. What goes out: the
daemon's memory, the probes' answers, the number of rounds. Law: nothing is timed, because other work of the machine is
no fault of the daemon. The attack goes on until the rounds of its time are there. docs/threat-model.md has latencies,
and tests/web/test_turns.py what a flood may delay.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import bcrypt
import pytest

from daemon.floods import ATTACKS
from daemon.memory_cell import anonymous, memory_cell
from daemon.running import Daemon, until
from patience import PATIENCE
from scraped import series
from serving.certificates import Authority

pytestmark = pytest.mark.daemon

MEMORY = 128 << 20
"""Half of what the chart gives the daemon."""
INTERVAL = 1.0
LONGEST = 1.2 * INTERVAL
"""Seconds between two rounds that the sampler plans at most."""
SECONDS = 6.0
MINUTE = 60.0
PROBED = 5.0
"""Seconds that the chart's probes wait."""
IN_A_ROW = 3
"""Failed probes one after the other that make a pod unready. The chart lets six pass before a restart."""
LOST_TWICE = "Exception in callback _SelectorSocketTransport._call_connection_lost("
"""
What Python (3.11 to 3.13) logs if a client resets a connection that is closing, between two sends of `_write_ready`.

The second send, which only TLS makes (`resume_writing`), fails and plans the end of the connection. `_write_ready` then
finds its buffer empty, and ends it at once. The planned end finds nothing left to end. It costs a line of the log.
"""
GPUSTEWARD = Path(sys.executable).with_name("gpusteward")
TLS = "cert_file: server.pem, key_file: server.key"
WEB = {
    "plain": "{}",
    "login": "basic_auth_users: {anna: HASHED}",
    "tls": f"tls_server_config: {{{TLS}}}",
    "mutual": f"tls_server_config: {{{TLS}, client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}}",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


@contextmanager
def attacked(daemon: Daemon, names: Sequence[str], *, tls: bool) -> Iterator[None]:
    """Attack within the `with`; its body begins when the attack has."""
    port = daemon.url.rpartition(":")[2]
    words = [sys.executable, "-m", "daemon.floods", port, *names, *(["--tls"] if tls else [])]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as attacker:
        stuck = threading.Timer(PATIENCE, attacker.kill)
        stuck.start()
        try:
            assert attacker.stdout is not None and attacker.stdout.readline() == "begun\n"
            stuck.cancel()
            yield
            assert attacker.poll() is None, "the attacker ended by itself"
        finally:
            stuck.cancel()
            attacker.kill()


class Client:
    """A client that may read: it has a certificate and a password."""

    def __init__(self, daemon: Daemon, authority: Authority) -> None:
        self.daemon = daemon
        self.context = authority.client("client")
        self.login = f"Basic {base64.b64encode(b'anna:secret').decode()}"

    def get(self, url: str) -> str:
        request = urllib.request.Request(url, headers={"Authorization": self.login})
        context = self.context if url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=PROBED, context=context) as answer:
            return str(answer.read().decode())

    def passes(self, url: str) -> bool:
        """Tell whether a probe passes, as the kubelet judges: one answer in time, out of a few attempts."""
        for _ in range(IN_A_ROW):
            try:
                if self.get(url) == "ok\n":
                    return True
            except OSError:
                continue
        return False

    def metrics(self) -> str | None:
        """Scrape; None if the attack had the connection closed."""
        try:
            return self.get(f"{self.daemon.url}/metrics")
        except (OSError, HTTPException):
            return None

    def rounds(self) -> float | None:
        """Rounds since the start; None if the attack had the connection closed."""
        page = self.metrics()
        return sum(series(page, "rounds_total").values()) if page else None


def survives(tmp_path: Path, web: str, names: Sequence[str], seconds: float) -> None:
    """Attack a daemon for so long; look at its memory, its probes and its rounds."""
    authority = Authority(tmp_path)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()  # 80 ms, too much for an import of this file
    (tmp_path / "web.yaml").write_text(WEB[web].replace("HASHED", hashed))
    config = {
        "devices": "simulated",
        "sampling": {"interval": f"{INTERVAL:g}s"},
        "log": {"format": "json"},
        "policy": {"mode": "observe", "stop_file": str(tmp_path / "stop")},
        "web": {"config_file": str(tmp_path / "web.yaml"), "probe_address": f"127.0.0.1:{free_port()}"},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    with (
        memory_cell(MEMORY) as cell,
        Daemon(f"--config={tmp_path}/config.yaml", cgroups=cell.folders, command=(GPUSTEWARD, "run")) as daemon,
    ):
        client = Client(daemon, authority)
        before = until(client.rounds, "a round", daemon)
        (started,) = (json.loads(line) for line in daemon.lines if "daemon.started" in line)
        probes = [f"{started['probe_url']}/healthz", f"{started['probe_url']}/readyz"]
        if web == "plain":  # the port of all others, on which the attack takes the connections
            probes.append(f"{daemon.url}/healthz")
        most, waited, enough = 0, 0.0, before + seconds // LONGEST
        with attacked(daemon, names, tls=web in {"tls", "mutual"}):
            began = time.monotonic()
            while time.monotonic() < began + seconds or (client.rounds() or 0) < enough:
                assert daemon.process.poll() is None, f"ended; the kernel ended {cell.ended()}:\n{daemon.log[-2000:]}"
                assert time.monotonic() < began + seconds + PATIENCE, "the rounds do not go on"
                most = max(most, anonymous(daemon.process.pid))
                for probe in probes:
                    asked = time.monotonic()
                    assert client.passes(probe), f"{probe} failed {IN_A_ROW} times in a row"
                    waited = max(waited, time.monotonic() - asked)
                time.sleep(0.05)
            lasted, page = time.monotonic() - began, until(client.metrics, "a scrape", daemon)
        rounds = sum(series(page, "rounds_total").values()) - before
        print(f"{web} {'+'.join(names)}: {most >> 20} MiB, probes {waited:.3f} s, {rounds:g} rounds in {lasted:.0f} s")
        assert most < MEMORY
        assert cell.ended() == 0
        assert sum(series(page, "round_failures_total").values()) == 0, "a round failed"
        assert sum(series(page, "rounds_incomplete_total", "reason").values()) == 0, "a round missed a source"
        assert "web.failed" not in daemon.log
        assert [line for line in daemon.lines if "Traceback" in line and LOST_TWICE not in line] == []


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "logins"])
def test_strangers_end_no_daemon(tmp_path: Path, name: str) -> None:
    """Each attack on a port without protection."""
    survives(tmp_path, "plain", [name], SECONDS)


@pytest.mark.parametrize("name", ["unfinished", "silent", "hasty"])
@pytest.mark.parametrize("web", ["tls", "mutual"])
def test_nor_with_tls(tmp_path: Path, name: str, web: str) -> None:
    """TLS costs memory, too; where a certificate is required, those without one reach no parser of requests."""
    survives(tmp_path, web, [name], SECONDS)


def test_nor_by_guessing_passwords(tmp_path: Path) -> None:
    """Three hundred wrong logins at once, with large headers: the known login of a scraper passes."""
    survives(tmp_path, "login", ["logins"], SECONDS)


@pytest.mark.parametrize("web", ["plain", "tls"])
def test_nor_all_at_once_for_a_minute(tmp_path: Path, web: str) -> None:
    """All attacks together: with TLS each connection costs most."""
    survives(tmp_path, web, list(ATTACKS), MINUTE)
