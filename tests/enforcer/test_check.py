"""What `gpusteward check` asks for a mode besides what the exporter needs, and what it makes of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from enforcer.actuators.notify import RIGHTS
from enforcer.check import mode_rights
from exporter import checking
from exporter.checking import Failed, Verdict
from exporter.config import Arguments, ConfigError, load
from exporter.probing import preflight

GRANTED = dict.fromkeys(RIGHTS, True)


@pytest.mark.parametrize("mode", ["off", "observe", "warn", "dry-run", "enforce"])
def test_rights_are_asked_for_from_mode_warn_on(mode: str) -> None:
    """Who only observes writes nothing; every mode above tells users."""
    config = load(Arguments(None, {"policy.mode": mode, "node.name": "n1"}))
    assert mode_rights(config) == (() if mode in {"off", "observe"} else RIGHTS)


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_each_right_that_a_mode_lacks_fails(right: object) -> None:
    """The mode, the right, what is lost, and who grants it; unknown is a warning."""
    lost = next(one for one in RIGHTS if one is right)
    line = checking.mode_rights("warn", {**GRANTED, lost: False})
    assert line.verdict is Verdict.FAIL
    assert "mode warn" in line.message and f"{lost} ({lost.without})" in line.message
    assert "deploy/enforcer/rbac.yaml" in line.message
    (other,) = (one for one in RIGHTS if one is not right)
    assert str(other) not in line.message
    assert checking.mode_rights("warn", GRANTED).verdict is Verdict.OK
    assert checking.mode_rights("warn", None).verdict is Verdict.WARN
    unknown = checking.mode_rights("warn", Failed("403 Forbidden: no", 403))
    assert unknown.verdict is Verdict.WARN and "lacks" not in unknown.message


async def test_a_policy_that_run_refuses_is_refused_here(tmp_path: Path) -> None:
    """A grace that is only a word: check and daemon read the same config with the same eyes."""
    from enforcer.config import impossible

    file = tmp_path / "config.yaml"
    file.write_text("node: {name: n1}\ndevices: simulated\npolicy: {grace: 3s}\n")
    arguments = Arguments(file)
    with pytest.raises(ConfigError, match=r"policy\.grace"):
        load(arguments, impossible)
    lines = await preflight(arguments, in_a_pod=False, also=impossible, more=mode_rights)
    assert (checking.exit_code(lines), [line.check for line in lines]) == (2, ["config"])
    assert "policy.grace" in lines[0].message
