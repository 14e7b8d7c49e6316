"""
How many actions: the budgets of the node and of each namespace, and the back-off of each workload.

Tokens that were taken come in, and the moment. What is left goes out, and the reason why a pod has to wait.

The rule: a token is taken when an action is intended, and given back where it is certain that nothing was done
(`outcomes`). Windows count in boot time, which no clock setting moves. Only the pods that were created after the
last action on their workload wait for its back-off, and creation is compared in Unix time.
"""

from enforcer.policy.history import Spent, Workload
from enforcer.policy.limit_holders import Case
from enforcer.policy.rules import Budget, Rules
from enforcer.policy.vocabulary import Reason, Scope

DAY = 86400.0
"""Seconds for which tokens are kept at least: the back-off starts anew after a day without an action."""
FIRST_BACK_OFF = 60.0
LONGEST_BACK_OFF = 600.0


def pruned(spent: tuple[Spent, ...], rules: Rules, boot: float) -> tuple[Spent, ...]:
    """Forget the tokens that no budget counts any more."""
    longest = max(rules.budgets.node.window, rules.budgets.namespace.window, DAY)
    return tuple(token for token in spent if boot - token.at < longest)


def exhausted(spent: tuple[Spent, ...], case: Case, rules: Rules, boot: float) -> Reason | None:
    """Say which budget, or which back-off, does not allow an action on this pod now."""
    workload = case.workload
    if _backs_off([token for token in spent if token.workload == workload], case, boot):
        return Reason.BACK_OFF
    namespace = [token for token in spent if token.workload[0] == workload[0]]
    if _left(namespace, rules.budgets.namespace, boot) <= 0:
        return Reason.BUDGET_NAMESPACE
    return Reason.BUDGET_NODE if _left(spent, rules.budgets.node, boot) <= 0 else None


def back_off(times: int) -> float:
    """Return the seconds after so many actions on a workload within a day."""
    return min(LONGEST_BACK_OFF, FIRST_BACK_OFF * 2.0 ** min(times - 1, 10)) if times else 0.0


def remaining(spent: tuple[Spent, ...], rules: Rules, boot: float) -> dict[Scope, int]:
    """Count the tokens that are left: of the node, and of the most spent namespace."""
    budgets = rules.budgets
    names = {token.workload[0] for token in spent}
    left = (_left([token for token in spent if token.workload[0] == name], budgets.namespace, boot) for name in names)
    return {
        Scope.NODE: _left(spent, budgets.node, boot),
        Scope.NAMESPACE: min(left, default=budgets.namespace.most),
    }


def taken(spent: tuple[Spent, ...], boot: float, workload: Workload, time: float) -> tuple[tuple[Spent, ...], Spent]:
    """Take a token."""
    token = Spent(boot, workload, time)
    return (*spent, token), token


def without(spent: tuple[Spent, ...], token: Spent | None) -> tuple[Spent, ...]:
    """Give one token back."""
    if token not in spent:
        return spent
    place = spent.index(token)
    return (*spent[:place], *spent[place + 1 :])


def _backs_off(tokens: list[Spent], case: Case, boot: float) -> bool:
    recent = [token for token in tokens if boot - token.at < DAY]
    if not recent or case.pod is None:
        return False
    last = max(recent, key=lambda token: token.at)
    return case.pod.created_at >= last.time and boot - last.at < back_off(len(recent))


def _left(spent: tuple[Spent, ...] | list[Spent], budget: Budget, boot: float) -> int:
    # A token from the future (another boot's journal) counts: it may delay, and must not be free.
    return max(0, budget.most - sum(boot - token.at < budget.window for token in spent))
