"""
The section `policy` of the config, in the policy's words.

What comes in: a config. What goes out: rules, or the key that cannot be meant and what was expected there.

The law: the file says it, `rules` judges it, and an error of either names the key.
"""

from collections.abc import Iterator

from enforcer.policy.rules import Budget, Budgets, Protect, Rules, RulesError
from enforcer.policy.vocabulary import Mode, Rung, Trigger
from exporter.config import Config, tolerance_of
from exporter.model import PodUid


def rules_of(config: Config, *, own_pod: str = "", own_namespace: str = "") -> Rules:
    """Read the rules. `own_pod` and `own_namespace` are the daemon's own pod's UID and namespace. Raises RulesError."""
    policy = config.policy
    key, _, value = policy.namespaces.label.partition("=")
    protect, budgets = policy.protect, policy.budgets
    return Rules(
        mode=Mode(policy.mode),
        trigger=Trigger(policy.trigger),
        tolerance=tolerance_of(policy),
        warn_after=float(policy.warn_after),
        grace=float(policy.grace),
        ladder=tuple(policy.ladder),
        kill_when_blocked=policy.when_blocked == "kill",
        mps=Rung(policy.mps),
        consent=(key, value),
        budgets=Budgets(
            Budget(budgets.node.most, budgets.node.window),
            Budget(budgets.namespace.most, budgets.namespace.window),
            Budget(budgets.workload.most, budgets.workload.window),
        ),
        protect=Protect(
            tuple(protect.namespaces),
            protect.priority_at_least,
            dict(protect.labels),
            daemon_sets=protect.daemon_sets,
            bare_pods=protect.bare_pods,
            third_party=protect.third_party,
        ),
        interval=float(config.sampling.interval),
        spacing=float(policy.spacing),
        hold_off=float(policy.hold_off),
        strikes=policy.strikes,
        strike_half_life=float(policy.strike_half_life),
        own_pod=PodUid(own_pod) if own_pod else None,
        own_namespace=own_namespace,
        trusted_vendors=frozenset(policy.trusted_vendors),
    )


def impossible(config: Config) -> Iterator[tuple[str, str]]:
    """Name the key of the policy that the daemon cannot do, with what was expected instead."""
    if config.policy.mode == "enforce" and plays(config):
        yield "policy.mode", "at most dry-run, because the devices are not those of this node"
    yield from meaningless(config)


def plays(config: Config) -> bool:
    """Tell whether the devices are not this node's, so that nobody here is to be told, let alone acted on."""
    return config.devices == "simulated" or config.devices.recording is not None


def meaningless(config: Config) -> Iterator[tuple[str, str]]:
    """Name the key of the policy that cannot be meant, with what was expected instead."""
    try:
        rules_of(config)
    except RulesError as error:
        yield f"policy.{error.key}", error.expected
