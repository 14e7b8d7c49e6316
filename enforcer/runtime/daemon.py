"""
The daemon, put together: the exporter's own `observe()`, with the policy on top.

What comes in: flags, config and environment. What goes out: nothing; it ends when it is cancelled.

The rule: the parts are made here and in `with_kubernetes`, and nowhere else. The exporter gets the policy as four
functions, and never learns what they do.
"""

from collections.abc import Collection, Mapping

from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason
from enforcer.runtime.decider import Decider
from enforcer.runtime.hands import Fresh
from enforcer.runtime.policy_config import impossible, plays, rules_of
from exporter.config import Arguments, Config, ConfigError, source_of_names
from exporter.daemon import Enforcement, observe
from exporter.model import GpuUuid, Snapshot
from exporter.rounds.latest import Latest

POD_UID, POD_NAMESPACE, POD_NAME = "POD_UID", "POD_NAMESPACE", "POD_NAME"
"""Environment variables that the DaemonSet fills from its own pod's fields."""


async def daemon(
    arguments: Arguments,
    config: Config,
    environ: Mapping[str, str],
    *,
    program: str,
    refused: ConfigError | None = None,
) -> None:
    """Observe, decide and (as far as the mode allows) act, until cancelled. Raises as `observe` does."""
    own_pod, own_namespace = environ.get(POD_UID, ""), environ.get(POD_NAMESPACE, "")
    names = source_of_names(config.names, in_a_pod="KUBERNETES_SERVICE_HOST" in environ)
    acts = names == "kubernetes" and not plays(config)

    def rules(of: Config) -> Rules:
        return rules_of(of, own_pod=own_pod, own_namespace=own_namespace, confirm=acts)

    def apply(changed: Config) -> None:
        decider.rules = rules(changed)

    latest, link = Latest(), _Link()
    decider = Decider(rules(config), config.policy.stop_file)
    enforcement = Enforcement(decider, impossible, apply, link.attach)

    async def observing() -> None:
        await observe(arguments, config, latest, program=program, enforcement=enforcement, refused=refused)

    if not acts:
        decider.ceilings = (Ceiling(Mode.DRY_RUN, Reason.NOT_ARMED),)
        await observing()
        return
    # Imported here: actions and clients take 1.3 MB, and a node without Kubernetes needs none of them.
    from enforcer.runtime.with_kubernetes import acting  # noqa: PLC0415

    async with acting(config, decider, latest, link.fresh, own=(own_namespace, environ.get(POD_NAME, ""))):
        await observing()


class _Link:
    """The way to ask for a fresh round, once the sampler is there."""

    def __init__(self) -> None:
        self._fresh: Fresh | None = None

    def attach(self, fresh: Fresh) -> None:
        self._fresh = fresh

    async def fresh(self, only: Collection[GpuUuid]) -> Snapshot | None:
        return None if self._fresh is None else await self._fresh(only)
