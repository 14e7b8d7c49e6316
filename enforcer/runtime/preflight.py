"""
What `gpusteward check` asks for the acting half.

What comes in: a config. What goes out: the rights that its mode needs, and a line about fences.

The rule: nothing is set or written to find out.
"""

from enforcer.actions.fence.cgroup_paths import Leaves, mount_point
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.notify.actuator import RIGHTS
from enforcer.policy.vocabulary import Mode, Rung
from enforcer.runtime.fence_upkeep import impossible
from enforcer.runtime.policy_config import plays
from exporter.check.lines import Line, Verdict
from exporter.config import Config
from exporter.host.procfs import proc_root
from exporter.kube.rights import Right


def mode_rights(config: Config) -> tuple[Right, ...]:
    """Name the rights that the config's mode asks for besides the exporter's: what `gpusteward run` does with them."""
    return RIGHTS if Mode(config.policy.mode).rank >= Mode.WARN.rank else ()


async def fence(config: Config) -> tuple[Line, ...]:
    """Judge whether this node can fence, where the ladder has that."""
    if Rung.FENCE not in config.policy.ladder or plays(config):
        return ()
    limits = NvmlLimits()
    try:
        why = await impossible(limits, Leaves(proc_root(config.node.host_root), mount_point()))
    finally:
        await limits.close()
    if why is None:
        return (Line("fence", Verdict.OK, "the driver limits memory by cgroup; the rung is experimental"),)
    verdict = Verdict.FAIL if Mode(config.policy.mode) is Mode.ENFORCE else Verdict.WARN
    return (Line("fence", verdict, f"the ladder has it, and nobody can be fenced here: {why}"),)
