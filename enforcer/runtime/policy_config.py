"""
Makes the policy's rules from the section `policy` of the config.

What comes in: a config. What goes out: rules, or the invalid key and what was expected there.

The rule: an error of the file or of `rules` names the key. `build` names everything of ours that decides about limits
and is no rule: the version, the catalogue, and how limits are read.
"""

import hashlib
from collections.abc import Iterator

from enforcer.policy.rules import Budget, Budgets, Protect, Rules, RulesError
from enforcer.policy.vocabulary import Mode, Rung, Trigger
from exporter.base.version import VERSION
from exporter.config import Config, Limits, catalogue_of, tolerance_of
from exporter.model import PodUid


def rules_of(config: Config, *, own_pod: str = "", own_namespace: str = "", confirm: bool = False) -> Rules:
    """
    Read the rules. Raises RulesError.

    `own_pod` and `own_namespace` are the UID and the namespace of the daemon's own pod. `confirm`: the daemon writes
    Kubernetes Events, so that a pod's warning can be accepted by the API server before its grace runs.
    """
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
        own_pod=PodUid(own_pod) if own_pod else None,
        own_namespace=own_namespace,
        trusted_vendors=frozenset(policy.trusted_vendors),
        build=build_of(config.limits),
        confirm=confirm,
    )


def build_of(limits: Limits) -> str:
    """
    Return the daemon's version and a digest of the catalogue, with the config's additions and choices.

    The same files give the same text in each process, so a restart alone is no change.
    """
    decisive = (catalogue_of(limits), str(limits.systems), limits.fair_share, limits.mps_scope)
    digest = hashlib.sha256(repr(decisive).encode()).hexdigest()
    return f"{VERSION}+{digest[:12]}"


def impossible(config: Config) -> Iterator[tuple[str, str]]:
    """Yield each key of the policy that the daemon cannot follow, with what was expected instead."""
    if config.policy.mode == "enforce" and plays(config):
        yield "policy.mode", "at most dry-run, because the devices are not those of this node"
    yield from meaningless(config)


def plays(config: Config) -> bool:
    """Tell whether the devices are not this node's, so that no pod may be warned or acted on."""
    return config.devices == "simulated" or config.devices.recording is not None


def meaningless(config: Config) -> Iterator[tuple[str, str]]:
    """Yield each invalid key of the policy, with what was expected instead."""
    try:
        rules_of(config)
    except RulesError as error:
        yield f"policy.{error.key}", error.expected
