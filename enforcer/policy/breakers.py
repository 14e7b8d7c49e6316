"""
What stops all actions of the node until a person has looked: breakers.

The breakers so far come in. The breakers after an opening or a closing go out.

    breaker         opens when
    blast_radius    after a change of ours (version, rules, catalogue, driver) so many workloads are over their limits
                    that an error of ours is more likely than theirs
    attribution     memory of a pod that was acted on lives on under another owner: the accounts name the wrong pod
    internal        the policy met an error of its own
    journal         it is not known for certain what was done before

The rule: only a person closes a breaker (`gpusteward close`). No breaker opens by what a single pod does,
because it would shield the other pods. blast_radius is judged once after a change of ours, and takes three workloads.
"""

from collections.abc import Mapping

from enforcer.policy.history import Opened
from enforcer.policy.vocabulary import Breaker

FEWEST = 3
SHARE = 0.5

Breakers = Mapping[Breaker, Opened]


def blast(over: int, limited: int) -> bool:
    """Tell whether so many workloads over their limits are more likely an error of ours than of theirs."""
    return over >= FEWEST and over >= SHARE * limited


def opened(breakers: Breakers, which: Breaker, boot: float, detail: str) -> Breakers:
    """Open a breaker; one that is open keeps its beginning."""
    at = breakers[which].at if which in breakers else boot
    return {**breakers, which: Opened(at, detail)}


def closed(breakers: Breakers, which: Breaker) -> Breakers:
    """Close a breaker, because a person says so."""
    return {name: known for name, known in breakers.items() if name is not which}
