"""
Writes the page of all systems from the catalogue: `python -m tools.limits_reference`.

What comes in: the catalogue, and the verdicts that the scenario book expects. What goes out: the text of
docs/systems.md.

The rule: a test compares the page with this text.
"""

import sys
from collections.abc import Iterable

from enforcer.policy.vocabulary import Reason
from exporter.limits.loading import builtin
from exporter.limits.rows import Catalogue, Confidence, Per, Row, System, What
from exporter.limits.winner import KEPT
from exporter.model import EnforcedBy, Mechanism, Scope
from exporter.model.vendors import TRUSTED, VENDORS
from tools.scenario_results import NOT_YET, Outcome, Results, named_modes, results, under_enforce

HEAD = """\
# Systems

<!-- Written by `python -m tools.limits_reference`; change exporter/limits/catalogue/ instead;
the column for `mode: enforce` is from tests/systems/. -->

How a pod can declare its share of a GPU, by system: what gpusteward reads, which other part enforces the limit, and
what gpusteward does. `*` in a key stands for any text. The operator can add rows of the same form in the config.

Trust, from high to low: claim status, container resources, annotations of schedulers, annotations and labels of users,
environment. A lower source may only lower a limit. The first seen value of an annotation or label counts for the life
of the pod; a raise is refused. Zero declares nothing; more than the device is invalid. Compute shares are exported and
never enforced.

*Checked*: such a unit must fit the node. The node's capacity times the unit must be within 10 % of the memory of its
devices. With HAMi, the amount that it registers on the node counts instead of the capacity. Otherwise the declaration
is reported and not enforced.

*Times a factor*: an installation may count in larger units (HAMi's `memoryFactor: 1024` makes `gpumem: "3"` 3 GiB), and
the pod does not show it. Where the scheduler's annotation is a whole multiple of the resource, the annotation is right.
Without the annotation, half a device or more counts as written. A smaller amount is reported and not enforced, and an
amount below 256 MiB is no limit. If you know the factor, add a row to `limits.rows` with its `unit`: it replaces the
catalogue's row.

Some systems have reservation pods: each takes a whole GPU from the kubelet, so that the system's pods can share it.
Such a pod does not use the GPU, and is never called idle. Its limit is not counted while it uses nothing of the GPU.
The namespace is the system's own: no tenant may create pods in it. If your installation renames it, add it to
`limits.rows`:
`- {system: kai, reservation: {namespaces: [NAME], labels: [runai-gpu-group], group: runai-gpu-group}}`.

The column `CUDA contexts` says whether the declared amount includes the memory that the driver holds for each process
beside the process's own allocations. Unless it is `included`, the policy allows for it above the limit
([policy.md](policy.md#cuda-contexts)). Each section names the source of this.
"""

ENFORCED = f"""
The column *under `mode: enforce`* says what happens to a pod that stays over its limit. It assumes the defaults of the
config, and the permission of the pod's namespace. {NOT_YET}: not in this version, which holds the pod and shows why.
"""
NOTHING = """
## Where nothing is enforced

The systems, and modes of systems, in which `mode: enforce` does nothing about a pod over its limit. Reasons in
code marks, and their kinds, are those of [policy.md](policy.md#kinds-of-reasons). Without a kind, no pod can be over
its limit there, or gpusteward cannot see it.

| system | modes | why | kind |
|---|---|---|---|
"""
NOTHING_LINK = "[nothing](#where-nothing-is-enforced)"

_WORDS = {
    EnforcedBy.NONE: "nothing",
    EnforcedBy.HOOK: "a library in the container (can be bypassed)",
    EnforcedBy.MPS: "MPS, for each process",
    EnforcedBy.KERNEL: "a kernel module",
    EnforcedBy.DRIVER: "the driver",
    EnforcedBy.HARDWARE: "the hardware",
}
_UNITS = ((2**30, "GiB"), (2**20, "MiB"))
_KINDS = {
    What.MEMORY: "memory",
    What.MEMORY_RATIO: "share of memory",
    What.COMPUTE: "share of compute",
    What.COUNT: "count",
    What.DEVICE: "which device",
}


def page(catalogue: Catalogue, outcomes: Results) -> str:
    """Write the page. `outcomes` are those of the scenario book."""
    columns = ("system", "name", "enforced elsewhere by", "CUDA contexts", "gpusteward", "under `mode: enforce`")
    parts = [HEAD, ENFORCED, f"\n| {' | '.join(columns)} |\n", f"{'|---' * len(columns)}|\n"]
    parts += [
        f"| {system.title} | [`{system.name}`](#{system.name}) | {_WORDS[system.enforced_by]} | {system.context} "
        f"| {does(system)} "
        f"| {under_enforce(outcomes[system.name], NOTHING_LINK) if system.name in outcomes else ''} |\n"
        for system in catalogue
    ]
    parts += [NOTHING, *_nothing(catalogue, outcomes)]
    for system in catalogue:
        parts += _section(system)
    return "".join(parts)


def _nothing(catalogue: Catalogue, outcomes: Results) -> Iterable[str]:
    for system in catalogue:
        modes: dict[tuple[str, str], list[str]] = {}
        for outcome in outcomes.get(system.name, ()):
            if not outcome.action:
                modes.setdefault((_why(outcome), outcome.kind), []).append(outcome.mode)
        for (why, kind), named in modes.items():
            which = ", ".join(named_modes(named)) if len(outcomes[system.name]) > 1 else ""
            yield f"| [`{system.name}`](#{system.name}) | {which} | {why} | {kind} |\n"


def _why(outcome: Outcome) -> str:
    """Say why nothing is done; for a limit that is only reported, with the part that enforces it."""
    if not outcome.reason.startswith(f"`{Reason.REPORT_ONLY}`") or outcome.enforced_by in {"", EnforcedBy.NONE}:
        return outcome.reason
    enforced_by = EnforcedBy(outcome.enforced_by)
    why = f"{_WORDS[enforced_by]} enforces it" if enforced_by in KEPT else "what it means is not sure"
    return f"{outcome.reason}, as {why}"


def does(system: System) -> str:
    """Say what gpusteward does about the system's limits."""
    amounts = [row for row in system.rows if row.what in {What.MEMORY, What.MEMORY_RATIO}]
    if all(row.decoder in {"granted", "visible"} for row in amounts):
        return "shows what is used; nothing is declared"
    if system.vendor in _REPORTED:
        return "shows what is used and reports; acts only where `policy.trusted_vendors` names the vendor"
    if system.vendor not in TRUSTED:
        return "reports the declaration; the drivers it reads do not see the memory"
    signs = system.detect
    written = not any((signs.resources, signs.node_labels, signs.node_annotations, signs.drivers, signs.sharing))
    if all((row.enforced_by or system.enforced_by) in KEPT for row in amounts) and not written:
        return "reports"
    if all(row.confidence is Confidence.UNSURE for row in amounts):
        return "reports: the meaning is not sure"
    if all(row.scope is Scope.PROCESS for row in amounts):
        return "reports; enforces on the container if `limits.mps_scope` says so"
    if all((row.enforced_by or system.enforced_by) is EnforcedBy.MPS for row in amounts):
        return "reports; enforces on the container if `policy.mps` says so"
    return "enforces, as far as its mode goes"


_REPORTED = {vendor.name for vendor in VENDORS if vendor.memory_by_process and not vendor.trusted}
"""Vendors whose devices are read (docs/devices.md), but whose figures were never compared with hardware."""


_PLACES = {
    "node-label": "node label",
    "node-register": "mode of the device in the node annotation",
    "pod-label": "pod label",
    "pod-annotation": "pod annotation",
}


def _section(system: System) -> Iterable[str]:
    yield f"\n## {system.name}\n\n{system.title}."
    yield f" {system.note}\n" if system.note else "\n"
    yield f"\nEnforced elsewhere by {_WORDS[system.enforced_by]}.\n"
    for when in system.enforced_when:
        value = f" = `{when.value}`" if when.value else ""
        yield f"With the {_PLACES[when.at]} `{when.key}`{value}: by {_WORDS[when.enforced_by]}.\n"
    if system.bypass_env:
        yield f"Bypassed with {', '.join(f'`{name}`' for name in system.bypass_env)} in the environment.\n"
    yield f"CUDA contexts: {system.context}. {system.context_source}\n"
    yield f"Detected by {_detected(system)}.\n"
    if system.yields_to:
        yield f"Not where one of these is: {', '.join(f'`{name}`' for name in system.yields_to)}.\n"
    if (known := system.reservation) is not None:
        namespaces, labels = ([f"`{text}`" for text in texts] for texts in (known.namespaces, known.labels))
        yield f"Reservation pods: in the namespace {' or '.join(namespaces)}, with the label {' or '.join(labels)}.\n"
    yield f"Source: {'; '.join(system.sources)}.\n"
    yield "\n| read | says | unit | of | trust | confidence |\n|---|---|---|---|---|---|\n"
    for row in system.rows:
        yield (
            f"| {row.mechanism} `{row.key}` | {_KINDS[row.what]} | {_unit(row)} | {_of(row)} "
            f"| {row.trust.name.lower()} | {row.confidence} |\n"
        )
    yield from _notes(system)


def _notes(system: System) -> Iterable[str]:
    noted = [row for row in system.rows if row.note or row.loses_to or row.context]
    if noted:
        yield "\n"
    for row in noted:
        losing = f"Does not count beside {', '.join(f'`{key}`' for key in row.loses_to)}." if row.loses_to else ""
        contexts = f"CUDA contexts: {row.context}." if row.context else ""
        yield f"- `{row.key}`: {' '.join(filter(None, [row.note, contexts, losing]))}\n"


def _unit(row: Row) -> str:
    if row.what in {What.COUNT, What.DEVICE}:
        return ""
    if row.what is not What.MEMORY:
        return f"{float(row.units[0]):g} of a device{', *checked*' if row.calibrate or row.register else ''}"
    sizes = " or ".join(_size(int(unit)) for unit in row.units)
    if row.units[0] == 1 and row.mechanism in {Mechanism.RESOURCE, Mechanism.POLICY} and row.decoder != "quantity":
        sizes = "the device's"
    marks = [*(["times a factor"] if row.scaled else []), *(["*checked*"] if row.calibrate or row.register else [])]
    return ", ".join([sizes, *marks])


def _of(row: Row) -> str:
    if row.what in {What.COUNT, What.DEVICE}:
        return row.scope
    if row.per is Per.TOTAL:
        return f"{row.scope}, total / {' or '.join(f'`{key}`' for key in row.divide_by)}"
    return f"{row.scope}, per device" if row.per is Per.DEVICE else f"{row.scope}, above 1 whole devices"


def _size(unit: int) -> str:
    for size, name in _UNITS:
        if unit >= size and unit % size == 0:
            return f"{unit // size} {name}"
    return "bytes" if unit == 1 else f"{unit} bytes"


def _detected(system: System) -> str:
    signs = system.detect
    names = {
        "resource": signs.resources,
        "node label": signs.node_labels,
        "node annotation": signs.node_annotations,
        "pod label": signs.pod_labels,
        "pod annotation": signs.pod_annotations,
        "environment": signs.env,
        "scheduler": signs.schedulers,
        "DRA driver": signs.drivers,
    }
    ways = [f"{kind} `{name}`" for kind, written in names.items() for name in written]
    ways += [f"devices that the kubelet hands out as {kind}" for kind in signs.sharing]
    return "nothing: always on" if signs.always else ", ".join(ways)


if __name__ == "__main__":
    sys.stdout.write(page(builtin(), results()))
