"""The daemon as an operator meets it: how it starts, ends, reloads, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from daemon.fixtures import StartDaemon
from daemon.running import COMMAND, Daemon, until
from driver.node import FakeNode, GiB, gpus
from patience import PATIENCE
from scraped import series

pytestmark = pytest.mark.daemon

PROMPT = 10.0
"""Seconds: what waits for a call that hangs here would wait for ever, and a loaded machine takes its time to end."""


UNREAD = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400
"""As many requests as the daemon takes at once; their answers fill all buffers of a client that takes none."""


def run(*flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the daemon to its end: for ends that come by themselves."""
    return subprocess.run(
        [str(COMMAND), "--web.listen-address", "127.0.0.1:0", *flags],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def node(fake_node: FakeNode) -> FakeNode:
    """Two GPUs of 40 GiB."""
    fake_node.write(gpus(2, total=40 * GiB))
    return fake_node


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal(node: FakeNode, start_daemon: StartDaemon, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end it with code 0 within a second and without a traceback; the driver is let go."""
    daemon = start_daemon()
    daemon.snapshot()
    code, took = daemon.stop(number)
    assert (code, took < PROMPT) == (0, True), (code, took, daemon.log)
    assert "daemon.stopped" in daemon.lines[-1]
    assert "Traceback" not in daemon.log
    assert node.calls("nvmlShutdown") == node.calls("nvmlInit") > 0, (
        "of the thread that reads and of the one that listens"
    )


@pytest.mark.fault(25)
def test_a_hanging_driver_delays_nothing(node: FakeNode, start_daemon: StartDaemon) -> None:
    """While a driver call never returns, probes and metrics answer, and SIGTERM ends it within a second."""
    daemon = start_daemon()
    daemon.until(lambda s: s["complete"], "two good GPUs")
    node.hang("nvmlDeviceGetComputeRunningProcesses")

    def hung(snapshot: dict[str, object]) -> bool:
        return "driver_hung" in json.dumps(snapshot["faults"])

    daemon.until(hung, "the fault of the hanging call")
    assert daemon.get("/healthz") == (200, "ok\n")

    def down() -> str | None:
        page = daemon.get("/metrics")[1]
        return page if series(page, "gpu_up", "gpu") == {("0",): 0, ("1",): 0} else None

    page = until(down, "both GPUs to be down", daemon)  # a round of 5 s is over three intervals old at its end
    assert series(page, "device_memory_used_bytes", "gpu") == {}, "what is not measured now is not exported"
    assert series(page, "rounds_incomplete_total", "reason")[("driver_hung",)] >= 1
    code, took = daemon.stop()
    assert (code, took < PROMPT) == (0, True), (code, took, daemon.log)


def test_a_driver_that_comes_back_is_used_again(node: FakeNode, start_daemon: StartDaemon) -> None:
    """
    When the call returns, the next rounds are complete, without a restart.

    While it hangs, the unknown seconds of its GPUs grow from round to round, and their other counters stand still.
    """

    def seconds(name: str) -> float:
        return series(daemon.get("/metrics")[1], f"device_{name}_seconds_total", "gpu").get(("0",), 0.0)

    daemon = start_daemon()
    until(lambda: seconds("observed") > 0, "two readings", daemon)
    node.hang("nvmlDeviceGetMemoryInfo")
    daemon.until(lambda s: not s["complete"], "the hang")
    until(lambda: seconds("unknown") > 4, "the time of the call that hangs", daemon)
    unknown, observed = seconds("unknown"), seconds("observed")
    until(lambda: seconds("unknown") > unknown, "the unknown seconds to grow", daemon)
    assert seconds("observed") == observed
    node.clear_switch("hang.nvmlDeviceGetMemoryInfo")
    snapshot = daemon.until(lambda s: s if s["complete"] else None, "a complete round")
    assert len(snapshot["devices"]) == 2
    until(lambda: seconds("observed") > observed, "time between two readings again", daemon)
    assert "sampling.fault_cleared" in daemon.log


def test_a_driver_that_hangs_from_the_start_is_no_reason_to_end(node: FakeNode, start_daemon: StartDaemon) -> None:
    """The daemon comes up and serves its own metrics; it is healthy and not ready; it ends on a signal."""
    node.hang("nvmlInit")
    daemon = start_daemon()
    daemon.until(lambda s: not s["complete"], "the fault")
    assert daemon.get("/healthz")[0] == 200
    assert daemon.get("/readyz")[0] == 503
    code, took = daemon.stop()
    assert (code, took < PROMPT) == (0, True)


def test_a_lost_gpu_leaves_the_other_working(node: FakeNode, start_daemon: StartDaemon) -> None:
    """The GPU that fell off the bus is down and has no figures; its neighbour goes on."""
    daemon = start_daemon()
    daemon.until(lambda s: s["complete"], "two good GPUs")
    node.fail("*", 15, gpu=node.gpus[1].uuid)
    daemon.until(lambda s: not s["complete"], "the loss")
    page = daemon.page()
    assert series(page, "gpu_up", "gpu") == {("0",): 1, ("1",): 0}
    assert set(series(page, "device_memory_used_bytes", "gpu")) == {("0",)}
    assert "gpu_lost" in daemon.log


def test_a_daemon_that_starts_beside_a_lost_gpu_is_ready(node: FakeNode, start_daemon: StartDaemon) -> None:
    """An update that comes to a node with a GPU off the bus ends; without any GPU that answers it does not go green."""
    for gpu in node.gpus:
        node.fail("*", 15, gpu=gpu.uuid)
    daemon = start_daemon()
    daemon.until(lambda s: not s["complete"], "the loss")
    assert daemon.get("/readyz") == (503, "not ready yet: devices: gpu_lost\n")
    node.clear_switch("fail.*", gpu=node.gpus[0].uuid)
    snapshot = daemon.until(lambda s: s if s["devices"] else None, "the one that answers")
    assert not snapshot["complete"]
    assert daemon.get("/readyz") == (200, "ok\n")


def test_an_xid_is_heard_at_once_and_told(node: FakeNode, start_daemon: StartDaemon) -> None:
    """From the driver's event to metric, document and log: also of a GPU that does not answer any more."""
    uuid = node.gpus[1].uuid
    daemon = start_daemon()
    daemon.until(lambda s: all(gpu["xid_errors"] == [] for gpu in s["gpus"]), "both GPUs to be listened to")
    before = series(daemon.page(), "gpu_xid_errors_total", "gpu", "xid")
    node.fail("*", 15, gpu=uuid)
    node.inject_xid(uuid, 79)
    node.inject_xid(uuid, 12345, times=3)

    def told(snapshot: dict[str, Any]) -> Any:
        lost = snapshot["gpus"][1]
        return lost["xid_errors"] if not lost["up"] and sum(x["count"] for x in lost["xid_errors"]) == 4 else None

    errors = {one["xid"]: one for one in daemon.until(told, "four XIDs of a lost GPU")}
    assert errors[79]["meaning"] == "the GPU has fallen off the bus"
    page = daemon.page()
    after = series(page, "gpu_xid_errors_total", "gpu", "xid")
    assert (before["1", "79"], after["1", "79"], after["0", "79"]) == (0, 1, 0), "increase() sees the first one"
    assert after["1", "12345"] == 3
    last = series(page, "gpu_xid_last_timestamp_seconds", "gpu", "xid")
    assert last.keys() == {("1", "79"), ("1", "12345")}

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(daemon.lines) if '"devices.xid"' in line]

    until(lambda: sum(line["new_count"] for line in lines()) == 4, "the lines", daemon)
    assert {(line["gpu"], line["xid"]) for line in lines()} == {(1, 79), (1, 12345)}


def test_without_a_driver_it_says_what_to_do() -> None:
    """`auto` never falls back to a simulation: exit code 1, what happened, its cause and its fix, no traceback."""
    ended = run(env={"LD_LIBRARY_PATH": ""})
    assert ended.returncode == 1
    what, cause, fix, *more = ended.stderr.splitlines()
    assert what == "gpusteward-exporter: no GPU was found", ended.stderr
    assert cause.startswith("cause: the NVIDIA driver cannot be used: nvmlInit"), ended.stderr
    assert fix.startswith("fix: ") and "runtimeClassName" in fix, ended.stderr
    assert all(line.startswith("  ") for line in more), "only the fix goes on: no traceback"


@pytest.mark.fault(30)
def test_a_driver_replaced_under_it_ends_it(node: FakeNode, start_daemon: StartDaemon) -> None:
    """The library cannot be exchanged in a running process: exit code 1, so that the kubelet starts a new one."""
    daemon = start_daemon()
    daemon.snapshot()
    node.fail("*", 18)
    node.fail("nvmlInit", 18)
    assert daemon.wait() == 1, daemon.log
    what, cause, fix = daemon.lines[-3:]
    assert what.startswith("gpusteward-exporter: ") and "version mismatch" in what, daemon.log
    assert cause == "cause: the driver was upgraded under the loaded library", daemon.log
    assert fix.startswith("fix: start the daemon anew"), daemon.log
    assert "Traceback" not in daemon.log


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("web: {address: ':1'}", "web.address: unknown key"),
        ("samplng: {interval: 5s}\nsampling: {interval: 5 apples}", "sampling.interval"),
        ("sampling: {interval: 1ms}", "a duration from"),
        ("web: {listen_address: nowhere}", "web.listen_address"),
        ("devices: gpu", "devices"),
        ("- a list", "expected keys with values"),
        ("a: [", "config.yaml:1:5"),
        ("node: {name: 3}", "node.name"),
    ],
)
def test_a_bad_config_is_refused_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    """Exit code 2, the file, the key and what was expected; nothing starts."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    ended = run(f"--config={file}", "--devices=simulated" if "devices" not in text else "--log.level=info")
    assert ended.returncode == 2
    assert str(file) in ended.stderr and expected in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_older_image_with_a_newer_config_observes(tmp_path: Path) -> None:
    """Keys that this version does not know are refused by log, snapshot and metrics; what it knows is in force."""
    file = tmp_path / "config.yaml"
    known = "devices: simulated\nsampling: {interval: 200ms, fast_interval: 100ms%s}\nlog: {format: json}\n"
    file.write_text(known % ", jitter: 5s" + "tracing: {endpoint: 'localhost:4317'}\n")
    with Daemon(f"--config={file}") as daemon:
        snapshot = daemon.snapshot()
        assert snapshot["interval_seconds"] == 0.2 and snapshot["complete"] and snapshot["devices"]
        assert [fault["reason"] for fault in snapshot["faults"]] == ["config_invalid"]
        assert "unknown key" in snapshot["faults"][0]["message"]
        taken_at(daemon, successful=False)
        assert daemon.get("/readyz")[0] == 200

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in list(daemon.lines) if '"config.refused"' in line]

        (line,) = until(lines, "the line", daemon)
        assert "unknown key" in line["reason"] and line["effect"] == "the rest of the file is in force, in mode observe"
        file.write_text(known % "")
        daemon.until(lambda s: not s["faults"], "the mended file")
        taken_at(daemon, successful=True)
        assert len(lines()) == 1


def test_an_unreadable_config_is_refused(tmp_path: Path) -> None:
    """A file that is not there, and a folder in its place."""
    for path in (tmp_path / "missing.yaml", tmp_path):
        ended = run(f"--config={path}")
        assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr
        assert str(path) in ended.stderr


def test_unknown_flags_are_wrong_usage() -> None:
    """Exit code 2, as for a bad config."""
    assert run("--kill-them-all").returncode == 2


def test_a_port_in_use_is_told() -> None:
    """Exit code 1 and a sentence that names the address and the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("--devices=simulated", f"--web.listen-address={address}")
    assert ended.returncode == 1
    assert address in ended.stderr and "--web.listen-address" in ended.stderr and "Traceback" not in ended.stderr


def taken_at(daemon: Daemon, *, successful: bool) -> float:
    """Wait until the metrics say whether the config file is in force; since when the one in force is."""

    def look() -> float | None:
        page = daemon.get("/metrics")[1]
        (at,) = series(page, "config_last_reload_success_timestamp_seconds").values()
        return at if series(page, "config_last_reload_successful") == {(): float(successful)} else None

    return until(look, f"config_last_reload_successful {successful:d}", daemon)


def test_a_changed_config_is_applied_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    """Intervals change at once while it runs. Log and snapshot report an invalid file, and a valid one replaces it."""
    file = tmp_path / "config.yaml"
    file.write_text("devices: simulated\nsampling: {interval: 60s}\nlog: {format: json}\n")
    with Daemon(f"--config={file}") as daemon:
        assert daemon.snapshot()["interval_seconds"] == 60
        file.write_text("devices: simulated\nsampling: {interval: 200ms, fast_interval: 100ms}\nlog: {format: json}\n")

        def applied() -> bool:
            snapshot = daemon.snapshot()
            return bool(snapshot["interval_seconds"] == 0.2 and snapshot["round"] > 2)

        until(applied, "the new interval, long before the old one is over", daemon, within=30)
        file.write_text("sampling: {interval: never}\n")
        broken = daemon.until(lambda s: s if s["faults"] else None, "the refusal")
        assert broken["interval_seconds"] == 0.2 and broken["complete"]
        assert [fault["reason"] for fault in broken["faults"]] == ["config_invalid"]
        assert "sampling.interval" in broken["faults"][0]["message"]
        before = taken_at(daemon, successful=False)
        file.write_text("devices: simulated\nsampling: {interval: 300ms, fast_interval: 100ms}\nlog: {format: json}\n")
        daemon.until(lambda s: s["interval_seconds"] == 0.3 and not s["faults"], "the mended file")
        assert taken_at(daemon, successful=True) > before
        assert "config.refused" in daemon.log and "config.reloaded" in daemon.log


def test_a_broken_names_file_keeps_the_last_good_names(
    node: FakeNode, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Names stay from the last good file, marked as not live; the fault names the place in the file."""
    names = tmp_path / "names.yaml"
    names.write_text(
        json.dumps([{"namespace": "a", "pod": "p", "pod_uid": "u", "container": "c", "container_id": "0" * 64}])
    )
    daemon = start_daemon(f"--names.file={names}")
    daemon.until(lambda s: s["names_live"], "live names")
    names.write_text('[{"namespace": "a", "pood": "p"}]')
    snapshot = daemon.until(lambda s: s if not s["names_live"] else None, "the broken file")
    assert snapshot["complete"], "the last good names are still known"
    assert "names_invalid" in json.dumps(snapshot["faults"]) and "pood" in json.dumps(snapshot["faults"])
    names.unlink()
    daemon.until(lambda s: "names_unreadable" in json.dumps(s["faults"]), "the missing file")


def test_the_page_is_clean_and_complete_on_the_simulated_node() -> None:
    """The demo: ready at once, law 2 on each device, and a node page."""
    with Daemon("--devices=simulated", "--log.format=json") as daemon:
        snapshot = daemon.snapshot()
        assert snapshot["complete"] and daemon.get("/readyz")[0] == 200
        for device in snapshot["devices"]:
            parts = [device[f"memory_{part}_bytes"] for part in ("attributed", "ghost", "host", "unattributed")]
            assert sum(parts) == device["memory_used_bytes"], device
        assert "<title>" in daemon.get("/")[1]


IMPORTING = """
import os, signal, sys, threading

def state():
    return threading.active_count(), set(os.listdir("/proc/self/fd")), [signal.getsignal(n) for n in range(1, 32)]

beyond = []

def watch(event, details):
    writing = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writing or event.startswith(("socket.connect", "socket.bind", "subprocess.", "os.fork", "os.exec", "os.mkdir")):
        beyond.append((event, details))

before = state()
sys.addaudithook(watch)
import exporter.__main__, exporter.running
assert "exporter.devices.nvml.library" in sys.modules and "aiohttp" in sys.modules
assert state() == before, (before, state())
assert not beyond, beyond
assert "libnvidia-ml" not in open("/proc/self/maps").read()
"""


def test_its_imports_have_no_side_effects(node: FakeNode) -> None:
    """
    Importing the daemon loads code and does nothing else.

    It starts no thread and no program, handles no signal, keeps no file open, writes none, and opens no connection.
    It prints nothing, and does not load the driver's library, although one is there to be found.
    """
    done = subprocess.run(
        [sys.executable, "-B", "-c", IMPORTING],
        env={**os.environ, **node.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Its imports take half a second; a signal in the middle of them ends it with code 0, too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Signalling:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'exporter.daemon': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Signalling())\n"
    )
    ended = run("--devices=simulated", env={"PYTHONPATH": str(tmp_path)})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_round_begins_after_the_scrape_that_is_expected() -> None:
    """
    Of two scrapes the third is expected, and a round that is due in the moments before it waits.

    Here the moments are a minute, and so is the longest wait, so that a slow machine fails no test: from the second
    scrape to the time of the third, no round begins.
    """
    program = (
        "import sys; from exporter import __main__; from exporter.metrics import scrapes; scrapes.BEFORE = 60.0;"
        "from exporter.rounds.sampler import Beat; Beat.wait = lambda _, swing, __=0: 60.0 if swing == 1.0 else 0.2;"
        "sys.exit(__main__.main())"
    )
    flags = ("--devices=simulated", "--log.format=json")
    with Daemon(*flags, command=(sys.executable, "-c", program)) as daemon:
        daemon.get("/metrics")
        first = time.time()
        time.sleep(1.5)
        second = time.time()
        daemon.get("/metrics")
        answered = time.time()
        begins = daemon.until(lambda s: s["taken_at"] if s["taken_at"] > answered else None, "the next round")
    assert begins >= second + (second - first)


@pytest.mark.fault(70)
def test_a_scrape_that_is_not_read_holds_up_no_round(node: FakeNode, start_daemon: StartDaemon) -> None:
    """A scraper asks and asks and takes no answer: rounds go on at their pace, and others are answered."""
    daemon = start_daemon()
    first = daemon.snapshot()
    host, port = urllib.parse.urlsplit(daemon.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.sendall(UNREAD)
        blocked = daemon.snapshot()["round"]
        assert blocked >= first["round"]
        snapshot = daemon.until(lambda s: s if s["round"] >= blocked + 5 else None, "five more rounds")
        assert snapshot["complete"]
        assert daemon.get("/healthz") == (200, "ok\n")
        assert series(daemon.page(), "gpu_up", "gpu") == {("0",): 1, ("1",): 1}


@pytest.mark.fault(70)
def test_slow_clients_and_a_hanging_driver_together_delay_no_end(node: FakeNode, start_daemon: StartDaemon) -> None:
    """An endless body, answers that no client reads, half a request, a call that hangs: SIGTERM ends the daemon."""
    daemon = start_daemon()
    daemon.snapshot()
    host, port = urllib.parse.urlsplit(daemon.url).netloc.split(":")
    with ExitStack() as stack:
        unfinished, unread, half = (
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(3)
        )
        unfinished.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n.")
        assert unfinished.recv(12) == b"HTTP/1.1 405"
        half.sendall(b"GET /metrics HT")
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.sendall(UNREAD)
        before = node.calls("nvmlDeviceGetMemoryInfo")
        node.hang("nvmlDeviceGetMemoryInfo")
        until(lambda: node.calls("nvmlDeviceGetMemoryInfo") > before, "the call that hangs", daemon)
        code, took = daemon.stop()
    assert (code, took < PROMPT) == (0, True), (code, took, daemon.log)
    assert "Traceback" not in daemon.log


def test_a_log_that_nobody_reads_ends_nothing(node: FakeNode) -> None:
    """The collector of its lines goes away: the daemon goes on, and ends on a signal as usual."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [str(COMMAND), "--web.listen-address", "127.0.0.1:0", "--log.format=json", "--sampling.interval=200ms"],
        env={**os.environ, **node.environment(), "NODE_NAME": "n"},
        stderr=writing,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            url = next(json.loads(line)["url"] for line in lines if "daemon.started" in line)
        deadline = time.monotonic() + PATIENCE
        for state in (1, 0):
            while True:
                with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
                    if series(answer.read().decode(), "gpu_up", "gpu").get(("1",)) == state:
                        break
                assert time.monotonic() < deadline, f"waited for a GPU whose gpu_up is {state}"
                time.sleep(0.05)
            node.fail("*", 15, gpu=node.gpus[1].uuid)  # a fault, whose log line no program reads
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait(PATIENCE)


def test_a_path_of_any_bytes_is_served(node: FakeNode, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A file name need not be text; the document that names it is text."""
    daemon = start_daemon(f"--names.file={tmp_path}/{os.fsdecode(bytes([0xFF]))}.yaml")
    snapshot = daemon.until(lambda s: s if s["faults"] else None, "the fault of the missing file")
    assert r"\udcff.yaml" in snapshot["faults"][0]["message"]


def test_it_is_healthy_while_rounds_fail(node: FakeNode, start_daemon: StartDaemon) -> None:
    """A driver that answers garbage costs rounds, not the daemon."""
    daemon = start_daemon()
    daemon.snapshot()
    node.fail("nvmlDeviceGetMemoryInfo", 999, times=3)
    until(lambda: not node.switched("fail.nvmlDeviceGetMemoryInfo"), "the failing calls", daemon)
    daemon.until(lambda s: s["complete"], "a complete round after them")
    assert daemon.process.poll() is None
