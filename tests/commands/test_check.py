"""What `gpusteward check` asks for a mode besides what the exporter needs, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from driver.node import FakeNode, gpus
from enforcer.actions.notify.actuator import RIGHTS
from enforcer.runtime.preflight import fence, kill, mode_rights
from exporter.check import cluster
from exporter.check.lines import Failed, Line, Verdict, exit_code
from exporter.check.probe import preflight
from exporter.config import Arguments, Config, ConfigError, load
from sources.limits import R615, limits

__all__ = ["limits"]

GRANTED = dict.fromkeys(RIGHTS, True)


def whole(line: Line) -> str:
    """All that a line says."""
    return f"{line.message}; fix: {line.fix}"


@pytest.mark.parametrize("mode", ["off", "observe", "warn", "dry-run", "enforce"])
def test_rights_are_asked_for_from_mode_warn_on(mode: str) -> None:
    """A daemon that only observes writes nothing; each mode above writes Events."""
    config = load(Arguments(None, {"policy.mode": mode, "node.name": "n1"}))
    assert mode_rights(config) == (() if mode in {"off", "observe"} else RIGHTS)


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_each_right_that_a_mode_lacks_fails(right: object) -> None:
    """The line names the mode, the right, what is lost, and the file that grants it. Unknown is a warning."""
    lost = next(one for one in RIGHTS if one is right)
    line = cluster.rights({**GRANTED, lost: False}, "warn")
    assert line.verdict is Verdict.FAIL
    assert "mode warn" in whole(line) and f"{lost} ({lost.without})" in whole(line)
    assert "deploy/enforcer/rbac.yaml" in whole(line)
    (other,) = (one for one in RIGHTS if one is not right)
    assert str(other) not in whole(line)
    assert cluster.rights(GRANTED, "warn").verdict is Verdict.OK
    assert cluster.rights(None, "warn").verdict is Verdict.WARN
    unknown = cluster.rights(Failed("403 Forbidden: no", 403), "warn")
    assert unknown.verdict is Verdict.WARN and "lacks" not in whole(unknown)


async def test_a_policy_that_run_refuses_is_refused_here(tmp_path: Path) -> None:
    """A grace that cannot be meant: check and daemon read the same config with the same eyes."""
    from enforcer.runtime.policy_config import impossible

    file = tmp_path / "config.yaml"
    file.write_text("node: {name: n1}\ndevices: simulated\npolicy: {grace: 2h}\n")
    arguments = Arguments(file)
    with pytest.raises(ConfigError, match=r"policy\.grace"):
        load(arguments, impossible)
    lines = await preflight(arguments, in_a_pod=False, also=impossible, more=mode_rights)
    assert (exit_code(lines), [line.check for line in lines]) == (2, ["config"])
    assert "policy.grace" in lines[0].message


OLD = "driver 580.95.05 limits no cgroups: R615 and later do"


def config(folder: Path, policy: str, *, devices: str = "nvml", host_root: str = "/host") -> Config:
    """Load a config with this policy."""
    file = folder / "config.yaml"
    file.write_text(f"devices: {devices}\nnode: {{name: n1, host_root: {host_root}}}\npolicy: {{{policy}}}\n")
    return load(Arguments(file))


@pytest.fixture
def node_of(
    fake_node: FakeNode, limits: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], FakeNode]:
    """Make a node with a version of the driver, cgroup version 2 and a daemon that is root."""
    host = tmp_path / "host" / "proc" / "1"
    host.mkdir(parents=True)
    (host / "cgroup").write_text("0::/init.scope\n")
    (host / "stat").touch()
    (host.parent / "self").symlink_to("1")
    monkeypatch.setattr("enforcer.actions.fence.cgroup_paths.mount_point", lambda: tmp_path)
    monkeypatch.setattr("enforcer.runtime.fence_upkeep.geteuid", lambda: 0)

    def made(driver: str) -> FakeNode:
        fake_node.write(gpus(1), driver=driver)
        return fake_node

    return made


@pytest.mark.parametrize(
    ("driver", "policy", "said"),
    [
        (R615, "mode: enforce, ladder: [notify, fence]", (Verdict.OK, "experimental")),
        (
            "580.95.05",
            "mode: enforce, ladder: [notify, fence]",
            (Verdict.FAIL, f"{OLD}; pods over their limit are held"),
        ),
        ("580.95.05", "mode: dry-run, ladder: [notify, fence]", (Verdict.WARN, OLD)),
        (
            "580.95.05",
            "mode: enforce, ladder: [notify, fence, evict]",
            (Verdict.WARN, f"{OLD}; the ladder goes on to evict"),
        ),
    ],
)
async def test_a_ladder_with_a_fence_asks_whether_the_node_can(
    node_of: Callable[[str], FakeNode], tmp_path: Path, driver: str, policy: str, said: tuple[Verdict, str]
) -> None:
    """Where it cannot, enforce holds all pods, unless another step follows: then it is a warning. Nothing is set."""
    fake_node = node_of(driver)
    (line,) = await fence(config(tmp_path, policy, host_root=str(tmp_path / "host")))
    assert (line.check, line.verdict) == ("fence", said[0]) and said[1] in whole(line)
    assert not fake_node.calls("nvmlDeviceSetMemoryLimits")


async def test_a_driver_that_does_not_answer_fails_the_check(
    node_of: Callable[[str], FakeNode], tmp_path: Path
) -> None:
    """No other step follows until it answers, and the line says so."""
    node_of(R615).fail("nvmlSystemGetDriverVersion", 999)
    policy = "mode: enforce, ladder: [notify, fence, evict]"
    (line,) = await fence(config(tmp_path, policy, host_root=str(tmp_path / "host")))
    assert line.verdict is Verdict.FAIL and line.message.endswith(
        "; pods over their limit are held until that is known"
    )


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("mode: enforce, ladder: [notify, kill]", (Verdict.FAIL, "; pods over their limit are held")),
        ("mode: dry-run, ladder: [notify, kill]", (Verdict.WARN, "; pods over their limit are held")),
        (
            "mode: enforce, ladder: [evict, kill], when_blocked: kill",
            (Verdict.WARN, "; a blocked eviction is tried again"),
        ),
    ],
)
def test_a_ladder_with_a_kill_asks_whether_the_node_can(
    node_of: Callable[[str], FakeNode], tmp_path: Path, policy: str, said: tuple[Verdict, str]
) -> None:
    """A daemon that does not see the host's processes cannot signal them."""
    node_of(R615)
    (line,) = kill(config(tmp_path, policy, host_root=str(tmp_path / "host")))
    assert (line.check, line.verdict) == ("kill", said[0]) and said[1] in whole(line)
    assert line.message.startswith("this node cannot kill: ")


def test_a_ladder_without_a_kill_has_no_line_about_it(tmp_path: Path) -> None:
    """Neither have devices that are not the node's."""
    assert kill(config(tmp_path, "ladder: [notify, evict]")) == ()
    assert kill(config(tmp_path, "ladder: [notify, kill]", devices="simulated")) == ()


async def test_who_does_not_fence_is_not_asked(tmp_path: Path) -> None:
    """No line, and no driver: neither for another ladder nor for devices that are not the node's."""
    assert await fence(config(tmp_path, "ladder: [notify, evict]")) == ()
    assert await fence(config(tmp_path, "ladder: [notify, fence]", devices="simulated")) == ()
