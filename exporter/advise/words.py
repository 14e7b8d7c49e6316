"""
What to do where no patch can declare a limit, in words.

What comes in: the system of the present declaration, the advised limit. What goes out: a sentence, or none.

The rule: words name the place that counts, by the rows of the catalogue.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from exporter.advise.writable import amount
from exporter.limits.rows import Row, System, What
from exporter.model import EnforcedBy, Mechanism, Scope

PARTITIONS = {"nvidia": "MIG profile", "amd": "memory partition", "huawei": "vNPU template"}
"""A hardware partition in the vendor's words."""
WHOLE = "it has a whole device, and needs {}: a share of one would do"
WHOLE_CLAIM = "its ResourceClaim has a whole device or partition, and needs {}: a smaller one would do"
IN_CLAIMS = {Mechanism.CLAIM, Mechanism.CLAIM_CONFIG}


def quantity(amount: float) -> str:
    """Write bytes as a quantity for people."""
    return f"{amount / 2**30:.4g}Gi"


def amounts(system: System) -> list[Row]:
    """List the rows that declare memory."""
    return [row for row in system.rows if row.what in (What.MEMORY, What.MEMORY_RATIO)]


def of_claim(system: System | None, scope: str) -> bool:
    """Return whether a ResourceClaim declares the memory that its containers share."""
    if scope:
        return scope == Scope.CLAIM
    return system is not None and {row.mechanism for row in amounts(system)} <= IN_CLAIMS and bool(amounts(system))


def claimed(limit: int) -> str:
    """Say what to ask for in a claim."""
    return f"ask for {quantity(limit)} of memory in the capacity of the ResourceClaim"


def fixed(system: System, row: Row | None, scope: str, limit: int, *, whole: bool | None) -> str:
    """
    Say in words what to do where an amount cannot be written; empty if it can, `WHOLE` for a whole device.

    `row` is the one that could be; `whole`: whether it has a whole device, None if unknown.
    """
    scopes = {one.scope for one in amounts(system)}
    if scope == Scope.INSTANCE or (not scope and scopes == {Scope.INSTANCE}):
        return f"choose the smallest {PARTITIONS.get(system.vendor, 'partition')} with at least {quantity(limit)}"
    if words := _mps(system, limit):
        return words
    hard = {EnforcedBy.HARDWARE} if row is not None else {EnforcedBy.HARDWARE, EnforcedBy.DRIVER}
    if system.enforced_by not in hard or (row is not None and not whole):
        return ""
    if row is None and (form := next((one for one in amounts(system) if amount(one)), None)) is not None:
        return f"set {form.key} to {ceil(Fraction(limit) / form.units[0])}; the name of the model stands for the *"
    if whole is False:
        return f"choose the smallest share that the system offers with at least {quantity(limit)}"
    return WHOLE


def _mps(system: System, limit: int) -> str:
    """Say how MPS, which knows processes only, is given a limit; empty if this system is not of that kind."""
    rows = [row for row in amounts(system) if row.scope is Scope.PROCESS]
    if not rows:
        return ""
    row = next((one for one in rows if one.mechanism is not Mechanism.RESOURCE), rows[0])
    sentence = f"MPS limits each process: divide {quantity(limit)} by the number of its processes, and write that to"
    if row.mechanism in IN_CLAIMS:
        return f"{sentence} {row.key} of the ResourceClaim"
    return f"{sentence} {row.key}. It can only lower what the node's MPS gives to each"


def lowers_only(system: System | None, name: str, source: str, limit: int, present: float) -> str:
    """Say where a present limit has to be raised, if a further declaration cannot raise it."""
    keys = " or ".join(dict.fromkeys(_keys(system, source)))
    place = "fair_share of gpusteward's configuration" if source == Mechanism.POLICY else f"{name} ({keys or source})"
    return (
        f"the present limit of {quantity(present)} comes from {place}: raise it there to {quantity(limit)}. "
        "The smallest declaration counts, so our annotation can only lower it"
    )


def _keys(system: System | None, source: str) -> Iterable[str]:
    rows = [] if system is None else amounts(system)
    return (row.key for row in rows if row.mechanism == source and row.written_by is None and row.decoder != "granted")
