"""
The daemon as a process under the seccomp profile, with the fake driver: it does all that it does without.

In: the profile, loaded by libseccomp. Out: the snapshot, the page, the commands beside a daemon. Law: a call that the
profile forbids would show as a fault, a traceback or an exit status.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.fixtures import StartDaemon
from driver.node import FakeNode, GiB, gpus
from patience import PATIENCE
from profiles.test_seccomp import OBSERVE, under
from scraped import series

pytestmark = pytest.mark.daemon

COMMAND = Path(sys.executable).with_name("gpusteward")


def beside(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `gpusteward` under the profile, as `kubectl exec` does in the daemon's container."""
    command = [*under(OBSERVE), str(COMMAND), *words]
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_it_measures_answers_and_ends(fake_node: FakeNode, start_daemon: StartDaemon) -> None:
    """Under the profile it reads the driver and /proc, is ready, answers on its port, and ends on SIGTERM."""
    fake_node.write(gpus(2, total=40 * GiB))
    fake_node.spawn(f"alloc 0 {3 * GiB}")
    daemon = start_daemon(enter=under(OBSERVE))
    daemon.until(lambda one: sum(d["memory_host_bytes"] or 0 for d in one["devices"]) == 3 * GiB, "the memory")
    assert daemon.snapshot()["complete"]
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert "Seccomp:\t2\n" in status
    page = daemon.page()
    assert len(series(page, "device_memory_used_bytes", "uuid")) == 2
    assert daemon.get("/readyz")[0] == 200
    assert daemon.stop()[0] == 0
    assert "Traceback" not in daemon.log and "not implemented" not in daemon.log


def test_what_is_asked_beside_it_answers(fake_node: FakeNode, start_daemon: StartDaemon) -> None:
    """`check` and `top --once` under the profile do their work beside a daemon under it."""
    fake_node.write(gpus(2, total=40 * GiB))
    daemon = start_daemon(enter=under(OBSERVE))
    daemon.snapshot()
    table = beside("top", "--once", f"--url={daemon.url}")
    assert table.returncode == 0, table.stderr
    assert "GPU 1" in table.stdout
    checked = beside("check", "--devices=simulated", "--names.source=none")
    assert checked.returncode == 0, checked.stdout + checked.stderr
