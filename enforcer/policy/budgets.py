"""
How many actions: budgets of the node, the namespace and the workload, and strikes.

What comes in: tokens that were taken, and the moment. What goes out: what is left, and who has none left.

The rule: a token is taken when an action is intended. It is given back only where it is certain that nothing was done
(`outcomes`). Dry runs have budgets of their own, as large as the real ones. Windows count in boot time, which no clock
setting moves.
"""

from collections.abc import Mapping

from enforcer.policy.history import Spent, Strikes, Workload
from enforcer.policy.rules import Budget, Rules
from enforcer.policy.vocabulary import Reason, Scope

DAY = 86400.0
"""Seconds for which tokens are kept at least: a window made shorter and longer again must find them."""


def pruned(spent: tuple[Spent, ...], rules: Rules, boot: float) -> tuple[Spent, ...]:
    """Forget the tokens that no budget counts any more."""
    budgets = rules.budgets
    longest = max(budgets.node.window, budgets.namespace.window, budgets.workload.window, DAY)
    return tuple(one for one in spent if boot - one.at < longest)


def exhausted(spent: tuple[Spent, ...], workload: Workload, rules: Rules, boot: float, *, dry: bool) -> Reason | None:
    """Say whose budget does not allow another action on a pod of `workload`."""
    mine = [one for one in spent if one.dry is dry]
    namespace = [one for one in mine if one.workload[0] == workload[0]]
    same = [one for one in mine if one.workload == workload]
    if _left(same, rules.budgets.workload, boot) <= 0:
        return Reason.BUDGET_WORKLOAD
    if _left(namespace, rules.budgets.namespace, boot) <= 0:
        return Reason.BUDGET_NAMESPACE
    if _left(mine, rules.budgets.node, boot) <= 0:
        return Reason.BUDGET_NODE
    return None


def remaining(spent: tuple[Spent, ...], rules: Rules, boot: float, *, dry: bool) -> dict[Scope, int]:
    """Count the tokens that are left: of the node, and of the most spent namespace and workload."""
    mine = [one for one in spent if one.dry is dry]
    namespaces = {one.workload[0] for one in mine}
    workloads = {one.workload for one in mine}
    budgets = rules.budgets
    return {
        Scope.NODE: _left(mine, budgets.node, boot),
        Scope.NAMESPACE: min(
            (_left([one for one in mine if one.workload[0] == name], budgets.namespace, boot) for name in namespaces),
            default=budgets.namespace.most,
        ),
        Scope.WORKLOAD: min(
            (_left([one for one in mine if one.workload == name], budgets.workload, boot) for name in workloads),
            default=budgets.workload.most,
        ),
    }


def struck(strikes: Mapping[Workload, Strikes], workload: Workload, rules: Rules, boot: float) -> Strikes:
    """
    Add an episode of `workload` to those that are not forgiven yet.

    What is told within `warn_after` is one: a pod that exceeds on eight GPUs at once did it once. One subject needs
    longer than that to end an excess and to be told of the next.
    """
    last = strikes.get(workload)
    if last is not None and 0 <= boot - last.at < rules.warn_after:
        return last
    return Strikes(standing(strikes, workload, rules, boot) + 1, boot)


def unforgiven(strikes: Mapping[Workload, Strikes], rules: Rules, boot: float) -> dict[Workload, Strikes]:
    """Forget the workloads to which all was forgiven."""
    return {one: known for one, known in strikes.items() if standing(strikes, one, rules, boot) > 0}


def standing(strikes: Mapping[Workload, Strikes], workload: Workload, rules: Rules, boot: float) -> float:
    """Count the episodes of `workload` that are not forgiven yet: one goes each half-life, little by little."""
    known = strikes.get(workload)
    # What lies in the future (another boot's journal) is not forgiven yet, and no more than it was.
    return max(0.0, known.count - max(0.0, boot - known.at) / rules.strike_half_life) if known else 0.0


def _left(spent: list[Spent], budget: Budget, boot: float) -> int:
    # A token from the future (another boot's journal) counts: it may delay, and must not be free.
    return max(0, budget.most - sum(boot - one.at < budget.window for one in spent))
