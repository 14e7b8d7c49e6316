"""
What stops everything: breakers.

What comes in: the breakers so far, and what one snapshot or one outcome says. What goes out: the breakers after it.

    breaker         opens when                                              closes
    blast_radius    half of the pods with limits, and at least three,       by a person
                    are over them at once: more likely our error
    effectiveness   an action was accepted and had no effect in time        by a person
    api             three answers in a row say that we may not              by a person
    attribution     the numbers of the driver are not proven to be ours     by itself, ten clean minutes later
    sampler         the node's GPUs or drivers are others than before       by itself, after the hold-off
    config          the config cannot be used                               by itself, when it can
    internal        the policy met an error of its own                      by a person
    journal         what was done before is not known for certain,          by a person
                    or what is to be done cannot be noted

The law: a breaker that is open stays open until what is written here closes it; nothing that a pod does closes one.
What a pod can do (be unattributed, crash, hide, have an instance made for its start) opens none: it would be a shield.
"""

from collections.abc import Mapping

from enforcer.policy.history import Opened
from enforcer.policy.vocabulary import Breaker
from exporter.model import Snapshot

CLEAN = 600.0
"""Seconds after the last doubt about whose numbers these are."""
FEWEST = 3
SHARE = 0.5
REFUSALS = 3

Breakers = Mapping[Breaker, Opened]


def blast(over: int, limited: int) -> bool:
    """Tell whether so many pods over their limits are more likely an error of ours than of theirs."""
    return over >= FEWEST and over >= SHARE * limited


def opened(breakers: Breakers, which: Breaker, boot: float, detail: str, *, lasts: float | None = None) -> Breakers:
    """Open a breaker, for so many seconds or until a person closes it; one that is open keeps its beginning."""
    at = breakers[which].at if which in breakers else boot
    return {**breakers, which: Opened(at, None if lasts is None else boot + lasts, detail)}


def closed(breakers: Breakers, which: Breaker) -> Breakers:
    """Close a breaker: what a person does, and what the config's return does."""
    return {name: one for name, one in breakers.items() if name is not which}


def after(breakers: Breakers, snapshot: Snapshot, boot: float, *, gpus_changed: bool, hold_off: float) -> Breakers:
    """Open and close what a snapshot opens and closes."""
    breakers = {name: one for name, one in breakers.items() if one.until is None or boot < one.until}
    if not snapshot.pid_domain_proven:
        detail = "it is not proven that the driver's process numbers are those of /proc"
        breakers = dict(opened(breakers, Breaker.ATTRIBUTION, boot, detail, lasts=CLEAN))
    if gpus_changed:
        detail = "GPUs came, went, or have another driver"
        breakers = dict(opened(breakers, Breaker.SAMPLER, boot, detail, lasts=hold_off))
    invalid = next((fault for fault in snapshot.faults if fault.reason == "config_invalid"), None)
    if invalid is not None:
        return opened(breakers, Breaker.CONFIG, boot, invalid.message)
    return closed(breakers, Breaker.CONFIG)
