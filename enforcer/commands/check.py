"""
`gpusteward check`: say whether the daemon can do on this node what these flags and this config ask for.

What comes in: the flags of the daemon. What goes out: a line for each check on standard output, and the exit code.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from enforcer.commands import Commands
from exporter.config.arguments import add_flags, chosen

if TYPE_CHECKING:
    from exporter.check.lines import Line
    from exporter.config import Config
    from exporter.kube.rights import Right


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "check",
        help="ask everything that the daemon would lean on, and say what to do about what is not good",
        description="Ask everything that the daemon would lean on: one line each. Takes the flags of the daemon. "
        "Exit code 0 when it can do what is asked, 1 when not, 2 on wrong usage or config.",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.add_argument("--json", action="store_true", help="print {exit_code, checks: [{check, verdict, message}]}")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Check, print, and return the exit code."""
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from exporter.check.lines import exit_code, render  # noqa: PLC0415  (with the probes come driver, HTTP and more)
    from exporter.check.probe import preflight  # noqa: PLC0415

    arguments = chosen(namespace, os.environ)
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    lines = asyncio.run(preflight(arguments, in_a_pod=in_a_pod, also=impossible, more=mode_rights, beyond=fence))
    code = exit_code(lines)
    if namespace.json:
        checks = [{"check": line.check, "verdict": line.verdict, "message": line.message} for line in lines]
        sys.stdout.write(json.dumps({"exit_code": code, "checks": checks}, indent=2) + "\n")
    else:
        sys.stdout.write(render(lines, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    sys.stdout.flush()
    return code


def mode_rights(config: "Config") -> tuple["Right", ...]:
    """Name the rights that the config's mode asks for besides the exporter's: what `gpusteward run` does with them."""
    from enforcer.policy.vocabulary import Mode  # noqa: PLC0415

    if Mode(config.policy.mode).rank < Mode.WARN.rank:
        return ()
    from enforcer.actions.notify.actuator import RIGHTS  # noqa: PLC0415  (the Kubernetes client costs 20 MB)

    return RIGHTS


async def fence(config: "Config") -> "tuple[Line, ...]":
    """Judge whether this node can fence, where the ladder has that; sets nothing to find out."""
    from enforcer.policy.vocabulary import Mode, Rung  # noqa: PLC0415
    from enforcer.runtime.policy_config import plays  # noqa: PLC0415

    if Rung.FENCE not in config.policy.ladder or plays(config):
        return ()
    from enforcer.actions.fence.cgroup_paths import Leaves, mount_point  # noqa: PLC0415
    from enforcer.actions.fence.nvml import NvmlLimits  # noqa: PLC0415
    from enforcer.runtime.fence_upkeep import impossible  # noqa: PLC0415  (with it comes the driver's library)
    from exporter.check.lines import Line, Verdict  # noqa: PLC0415
    from exporter.host.procfs import proc_root  # noqa: PLC0415

    limits = NvmlLimits()
    try:
        why = await impossible(limits, Leaves(proc_root(config.node.host_root), mount_point()))
    finally:
        await limits.close()
    if why is None:
        return (Line("fence", Verdict.OK, "the driver limits memory by cgroup; the rung is experimental"),)
    verdict = Verdict.FAIL if Mode(config.policy.mode) is Mode.ENFORCE else Verdict.WARN
    return (Line("fence", verdict, f"the ladder has it, and nobody can be fenced here: {why}"),)
