"""`gpusteward check` as an operator meets it, on a node with the fake driver: lines, exit codes, ends."""

from __future__ import annotations

import json
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from daemon.commands import checks_and_fixes, complaint, gpusteward, shell
from daemon.fixtures import StartDaemon
from daemon.running import Daemon
from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, GiB, gpus
from serving.certificates import Authority
from sources.kernel import Node

pytestmark = pytest.mark.daemon

HERE = ("--node.trust-pid-namespace", "--names.source=none")
"""Tests may run in a nested PID namespace, and there is no cluster here."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Exit code, each check's verdict and message, its fix where one was printed, and all that was written."""

    code: int
    checks: dict[str, tuple[str, str]]
    fixes: dict[str, str]
    written: str
    errors: str

    def verdict(self, check: str) -> str:
        return self.checks[check][0]

    def message(self, check: str) -> str:
        return self.checks[check][1]

    def fix(self, check: str) -> str:
        """Return the fix that was printed below this check."""
        assert check in self.fixes, f"no fix below {check}:\n{self.written}"
        return self.fixes[check]


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `gpusteward` to its end."""
    return gpusteward(*words, **{"NODE_NAME": "test-node", **(env or {})})


def check(*flags: str, env: dict[str, str] | None = None) -> Ended:
    """Run `gpusteward check` and read what it printed."""
    ended = run("check", "--web.listen-address=127.0.0.1:0", *flags, env=env)
    assert "Traceback" not in ended.stderr, ended.stderr
    checks, fixes = checks_and_fixes(ended.stdout)
    return Ended(ended.returncode, checks, fixes, ended.stdout, ended.stderr)


@pytest.fixture
def node(fake_node: FakeNode) -> FakeNode:
    """Three GPUs of 40 GiB; the last one has MIG on, with one instance."""
    first, second, third = gpus(3, total=40 * GiB)
    instance = FakeGpuInstance(1, 10 * GiB, (FakeComputeInstance("MIG-1", 0),))
    fake_node.write([first, second, replace(third, mig="on", instances=(instance,))], driver="580.65.06")
    return fake_node


def test_a_good_node_passes(node: FakeNode) -> None:
    """Exit code 0, one verdict for each check, nothing on standard error; the driver is named and let go."""
    ended = check(*HERE, env=node.environment())
    assert (ended.code, ended.errors) == (0, ""), ended
    assert list(ended.checks) == ["config", "driver", "pid domain", "cgroup view", "names", "web address"]
    assert ended.verdict("driver") == "ok"
    for words in ("580.65.06", "3 GPUs", "MIG on 1 with 1 instance"):
        assert words in ended.message("driver")
    assert "fail" not in {verdict for verdict, _ in ended.checks.values()}
    assert not ended.fixes.keys() & {check for check in ended.checks if ended.verdict(check) == "ok"}, ended.written
    assert "\x1b" not in ended.written, "no colours where there is no terminal"
    assert node.calls("nvmlShutdown") == 1


def test_without_a_driver_it_says_what_to_do() -> None:
    """Exit code 1; the other checks are made all the same."""
    ended = check(*HERE, env={"LD_LIBRARY_PATH": ""})
    assert (ended.code, ended.verdict("driver"), ended.verdict("web address")) == (1, "fail", "ok")
    assert "the NVIDIA driver cannot be used: nvmlInit" in ended.message("driver"), ended.message("driver")
    assert "runtimeClassName" in ended.fix("driver")
    assert "web address" not in ended.fixes, "a check that passed needs no fix"


def test_another_vendors_gpu_is_told_with_what_can_never_be_known(tmp_path: Path) -> None:
    """The GPU is found without being named; a line says when its vendor is enforced, and what is always unknown."""
    made = Node(tmp_path / "node", Path("/proc"))
    made.card("0000:63:00.0", figures={"mem_info_vram_total": 64 * GiB, "mem_info_vram_used": 0})
    made.rocm_node(1, 41657, location_id=0x6300, domain=0, drm_render_minor=128, bank=64 * GiB)
    ended = check(*HERE, f"--node.host-root={made.root}", env={"LD_LIBRARY_PATH": ""})
    assert (ended.code, ended.verdict("driver"), ended.verdict("AMD")) == (0, "ok", "ok"), ended.written
    assert "AMD" in ended.message("driver") and "1 GPU (1 x amd 1002:74a1)" in ended.message("driver")
    told = ended.message("AMD")
    assert "never tried on hardware; enforced only if policy.trusted_vendors has amd" in told, told
    assert "always unknown: " in told and "ROCm" in told, told


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetMemoryInfo"])
def test_a_hanging_driver_is_told(node: FakeNode, function: str) -> None:
    """A driver call that never returns is a failed line, at the start or later; the command ends by itself."""
    node.hang(function)
    ended = check(*HERE, env=node.environment())
    assert (ended.code, ended.verdict("driver")) == (1, "fail")
    assert "hangs" in ended.message("driver") and function in ended.message("driver"), ended.message("driver")


def test_a_lost_gpu_is_named(node: FakeNode) -> None:
    """One GPU that does not answer fails, as no round would be complete; the others are counted."""
    node.fail("*", 15, gpu=node.gpus[1].uuid)
    ended = check(*HERE, env=node.environment())
    assert (ended.code, ended.verdict("driver")) == (1, "fail")
    assert "GPU 1 does not answer" in ended.message("driver"), ended.message("driver")
    assert "580.65.06, 2 GPUs" in ended.message("driver"), ended.message("driver")
    assert "dmesg" in ended.fix("driver")


def test_a_proc_that_is_not_the_drivers_is_told(node: FakeNode, tmp_path: Path) -> None:
    """A /proc of another PID namespace, as in a pod without hostPID: exit code 1, and hostPID in the line."""
    for process in ("self/ns", "1"):
        (tmp_path / "proc" / process).mkdir(parents=True)
    for file in ("self/stat", "1/stat", "1/cgroup"):
        (tmp_path / "proc" / file).touch()
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532001]")
    ended = check("--names.source=none", f"--node.host-root={tmp_path}", env=node.environment())
    assert (ended.code, ended.verdict("pid domain"), ended.verdict("driver")) == (1, "fail", "ok")
    assert "4026532001" in ended.message("pid domain") and "hostPID" in ended.fix("pid domain")


def test_a_wrong_config_is_exit_code_2(tmp_path: Path) -> None:
    """A bad file, a bad flag and a bad web config end as the daemon does with them, and name the place."""
    file = tmp_path / "config.yaml"
    file.write_text("samplng: {interval: 5s}\n")
    ended = check(f"--config={file}")
    assert (ended.code, list(ended.checks)) == (2, ["config"])
    assert ended.checks["config"] == ("fail", f"{file}: samplng: unknown key")
    assert '"sampling"' in ended.fix("config")
    flag = check("--sampling.interval=1ms")
    assert (flag.code, flag.verdict("config")) == (2, "fail")
    assert "--sampling.interval" in flag.message("config") and "--sampling.interval" in flag.fix("config")
    web = tmp_path / "web.yaml"
    web.write_text("tls_server_config: {cert_file: missing.pem, key_file: missing.key}\n")
    ended = check("--devices=simulated", f"--web.config.file={web}")
    assert (ended.code, ended.verdict("web config")) == (2, "fail")
    assert "missing.pem" in ended.message("web config") and ended.fix("web config")


@pytest.mark.parametrize("words", [(), ("check", "--kill-them-all"), ("destroy",)])
def test_wrong_usage_is_exit_code_2(words: tuple[str, ...]) -> None:
    """No sub-command, an unknown one, an unknown flag."""
    assert run(*words).returncode == 2


def test_a_names_file_is_read(tmp_path: Path) -> None:
    """How many containers it names; a broken one fails."""
    names = tmp_path / "names.yaml"
    names.write_text(f"- {{namespace: a, pod: p, pod_uid: u, container: main, container_id: {'a' * 64}}}\n")
    assert check(f"--names.file={names}").checks["names"] == ("ok", "the file names 1 container")
    names.write_text("- {namespace: 3}\n")
    ended = check(f"--names.file={names}")
    assert (ended.code, ended.verdict("names")) == (1, "fail")
    assert str(names) in ended.message("names") and "namespace" in ended.message("names"), ended.message("names")


def test_a_port_of_somebody_else_is_told() -> None:
    """Exit code 1, the address, and the flag that helps."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = check("--devices=simulated", f"--web.listen-address={address}")
    assert (ended.code, ended.verdict("web address")) == (1, "fail")
    assert f"cannot listen on {address}" in ended.message("web address"), ended.message("web address")
    assert "--web.listen-address" in ended.fix("web address")


@pytest.fixture
def protected(tmp_path: Path) -> tuple[str, ...]:
    """Flags of a daemon with TLS and basic authentication."""
    folder = tmp_path / "tls"
    folder.mkdir()
    Authority(folder)
    (folder / "web.yaml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    return (f"--web.config.file={folder / 'web.yaml'}",)


def test_beside_a_running_daemon_the_port_is_its_own(start_daemon: StartDaemon, node: FakeNode) -> None:
    """Started in the daemon's own pod: its address is in use by itself, which is as it should be."""
    daemon = start_daemon(*HERE)
    address = daemon.url.removeprefix("http://")
    ended = check(*HERE, f"--web.listen-address={address}", env=node.environment())
    assert ended.code == 0, ended
    assert ended.checks["web address"] == ("ok", f"{address} is served by a gpusteward that is running")
    assert daemon.process.poll() is None


def test_beside_a_daemon_with_tls_too(protected: tuple[str, ...]) -> None:
    """The same where the daemon speaks TLS. The output says by what its web config protects it."""
    with Daemon("--devices=simulated", "--log.format=json", *protected) as daemon:
        address = daemon.url.removeprefix("https://")
        ended = check("--devices=simulated", *protected, f"--web.listen-address={address}")
    assert (ended.code, ended.verdict("web address")) == (0, "ok"), ended
    assert ended.verdict("web config") == "ok" and "loads: TLS" in ended.message("web config")


def test_json_says_the_same() -> None:
    """`--json`: the exit code, and the checks in their order."""
    ended = run("check", "--devices=simulated", "--web.listen-address=127.0.0.1:0", "--json")
    document = json.loads(ended.stdout)
    assert document["exit_code"] == ended.returncode == 0
    assert [(one["check"], one["verdict"]) for one in document["checks"]] == [
        ("config", "ok"),
        ("driver", "ok"),
        ("web address", "ok"),
    ]
    assert all(one["message"] for one in document["checks"])


@pytest.mark.parametrize("form", ["", "--json"])
def test_an_output_that_cannot_be_written(form: str) -> None:
    """A reader that is gone, and no output at all, change no verdict. A full disk is exit code 1, and says why."""
    good = f"gpusteward check --devices=simulated --web.listen-address=127.0.0.1:0 {form}"
    for end in (">&-", "> >(true)"):
        assert (shell(f"{good} {end}").returncode, shell(f"{good} {end}").stderr) == (0, ""), end
        assert shell(f"{good} --web.listen-address=192.0.2.1:9 {end}").returncode == 1, end
    assert "cause: No space left on device" in complaint("check", shell(f"{good} > /dev/full"))


def test_in_a_pod_kubernetes_is_asked(tmp_path: Path) -> None:
    """Where Kubernetes names its API server in the environment, kubelet, API server, rights and node are checked."""
    env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "9"}
    ended = check("--node.trust-pid-namespace", f"--node.kubelet-root={tmp_path}", env=env)
    asked = {"kubelet": "fail", "api server": "fail", "api rights": "warn", "node name": "warn", "log links": "warn"}
    assert {check: ended.verdict(check) for check in asked} == asked
    assert str(tmp_path) in ended.message("kubelet") and "node.kubelet_root" in ended.fix("kubelet")
    assert "node.host_root" in ended.fix("log links")
    assert ended.code == 1
