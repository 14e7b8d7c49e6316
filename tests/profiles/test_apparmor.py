"""
The AppArmor profile of deploy/profiles: AppArmor's own compiler takes it, and what it says of other processes.

In: the profile. Out: the compiler's answer. Law: nothing is loaded into the kernel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cluster.fixtures import require
from cluster.requirements import APPARMOR, SBIN, lacking

PROFILE = Path(__file__).parents[2] / "deploy/profiles/gpusteward.apparmor"


def compiled(profile: Path) -> subprocess.CompletedProcess[str]:
    """Let AppArmor's compiler read a profile."""
    require([f"{need.program} is missing (Debian's {need.package})" for need in lacking(*APPARMOR)])
    parser = shutil.which("apparmor_parser", path=f"{os.environ.get('PATH', '')}:{SBIN}")
    assert parser
    command = [parser, "--skip-kernel-load", "--skip-cache", "--warn=all", str(profile)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_apparmors_compiler_takes_it() -> None:
    """The whole profile is compiled, for the features of AppArmor 3.0."""
    done = compiled(PROFILE)
    assert done.returncode == 0, done.stderr


def test_a_rule_that_is_none_is_refused(tmp_path: Path) -> None:
    """The compiler would say so: a typing error in the profile is not taken."""
    broken = tmp_path / "broken"
    broken.write_text(PROFILE.read_text().replace("deny ptrace,", "deny ptraec,"))
    assert compiled(broken).returncode != 0


def test_it_gives_no_way_out() -> None:
    """
    Besides files there are rules for sockets and for signals of its own, and no others: what no rule allows is denied.

    Of other processes nothing is read. Programs stay under the profile, and only the daemon's state is locked.
    """
    lines = PROFILE.read_text().partition("{\n")[2].rpartition("}")[0].splitlines()
    rules = [rule.removesuffix(",") for line in lines if (rule := line.strip()) and not rule.startswith("#")]
    files = [rule.split(" ") for rule in rules if rule.startswith("/")]
    assert {rule.split(" ")[0] for rule in rules if not rule.startswith("/")} == {"deny", "signal", "network", "unix"}
    assert "deny ptrace" in rules and [rule for rule in rules if "send" in rule] == [
        "signal (send, receive) peer=gpusteward"
    ]
    assert {access for _, access in files} == {"r", "rm", "ix", "rw", "rwk"}
    assert [path for path, access in files if access == "rwk"] == ["/var/lib/gpusteward/{,**}"]
