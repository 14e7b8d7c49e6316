"""
The tables of docs/policy.md that follow from code: `make golden`.

What comes in: the policy's reasons and their kinds, the default rules, the page. What goes out: the page, in which the
text between two marker comments is written anew. A test compares.

The rule: a reason's meaning and kind stand in `enforcer.policy.vocabulary`; what to do about it stands here, and a
reason without a remedy fails.
"""

from math import ceil
from pathlib import Path

from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import REASONS_OF, Kind, Reason
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, load

PAGE = Path(__file__).parents[1] / "docs" / "policy.md"
JITTER = 1.2
"""A round follows the one before after at most this many intervals."""
MINUTE = 60
PERIODS = (1, 5, 30)
"""Minutes between two beginnings of an excess."""
SHARES = (0.5, 0.7, 0.9, 1.0)
"""Of each period, the part that is over the limit."""
MEANS = {
    Kind.CHOSEN: "An operator, a namespace's administrator or the declaration itself decided it. Nothing alerts.",
    Kind.WAITING: "It ends by itself, within the bound in the table below.",
    Kind.UNKNOWN: "The daemon does not see or does not have something that acting needs. "
    "[GPULimitUnenforceable](runbooks/GPULimitUnenforceable.md) alerts after 15 minutes.",
    Kind.EVADED: "The tenant prevents the action. "
    "[GPULimitEvaded](runbooks/GPULimitEvaded.md) alerts after 15 minutes.",
}
REMEDIES = {
    Reason.UNDECLARED: "Declare a limit ([systems.md](systems.md)), or set `limits.fair_share: on`.",
    Reason.PROCESS_SCOPE: "Declare a limit for the container, or set `limits.mps_scope: container`.",
    Reason.PRIORITY: "Use an ordinary PriorityClass, or raise `policy.protect.priority_at_least`.",
    Reason.STATIC_POD: "Change its manifest on the node: an eviction removes only its mirror.",
    Reason.NAMESPACE: "Change `policy.protect.namespaces`. The daemon's own namespace stays protected.",
    Reason.OWN_POD: "Nothing.",
    Reason.LABEL: "Change `policy.protect.labels`. Choose labels that tenants cannot set.",
    Reason.EXEMPT: "Remove the label `gpusteward.io/allow-pod-exemption` from the namespace.",
    Reason.REPORT_ONLY: "Nothing: another system enforces it, or it is a hint ([systems.md](systems.md)).",
    Reason.MIG: "Nothing: the hardware bounds the instance.",
    Reason.EXCLUSIVE: "Nothing: no neighbour is harmed.",
    Reason.MPS: "Set `policy.mps: evict`, if your MPS server survives the end of a client ([below](#mps)).",
    Reason.UNVERIFIED_BACKEND: "Compare the numbers with the vendor's tool, then add it to `policy.trusted_vendors`.",
    Reason.MODE: "Raise `policy.mode`, or the namespace's label `gpusteward.io/mode`.",
    Reason.STOPPED: "Remove the file of `policy.stop_file`.",
    Reason.NO_CONSENT: "`kubectl label namespace NS gpusteward.io/mode=enforce`, and add the RoleBinding.",
    Reason.NO_RUNG: "Add `evict` to `policy.ladder`.",
    Reason.THIRD_PARTY: "Set `policy.protect.third_party: false`, or withdraw the namespace's exemption label.",
    Reason.DAEMON_SET: "Set `policy.protect.daemon_sets: false`, the default.",
    Reason.BARE_POD: "Set `policy.protect.bare_pods: false`, the default.",
    Reason.NOT_CONTENDED: "Set `policy.trigger: limit`, the default, if the limit alone is to count.",
    Reason.DRY_RUN: "Set `policy.mode: enforce`. The same pod is tried again after 10 min.",
    Reason.NOT_RUNNING: "Nothing: its memory is freed with its last process.",
    Reason.OTHER_GENERATION: "Nothing: the memory is freed with the old process.",
    Reason.TERMINATING: "Nothing: after 10 min it is `deletion_stuck`, or is killed where the ladder has `kill`.",
    Reason.NOT_OVER_NOW: "Nothing: the action follows in the next round over the limit.",
    Reason.FEW_READINGS: "Nothing: it ends after three readings over the limit, an interval apart.",
    Reason.LAST_LOOK: "Nothing: the next try follows after 10 s.",
    Reason.HOLD_OFF: "Nothing: it ends after `policy.hold_off` (5 min), and a minute later at most "
    "if namespaces cannot be read.",
    Reason.IN_FLIGHT: "Nothing: it ends when the API server's answer is confirmed, after 2 min at most. "
    "The same pod waits until its end was watched.",
    Reason.SPACING: "Nothing: 60 s after an action (`policy.spacing`), 5 s after a request that did nothing.",
    Reason.BUDGET_NODE: "Find out why so many exceed. A token returns after 10 min at most (`policy.budgets.node`).",
    Reason.BUDGET_NAMESPACE: "As above; `policy.budgets.namespace`.",
    Reason.BACK_OFF: "Tell the owner: the workload comes back and exceeds again. It ends after 1 to 10 min.",
    Reason.QUEUED: "Nothing: the longest due is first ([bound](#when-the-action-follows)).",
    Reason.READING_UNKNOWN: "Look at `gpusteward_source_up` and the log line `sampling.fault`. "
    "If one container is concerned for long, look at its processes.",
    Reason.PID_DOMAIN: "Run the daemon with `hostPID: true`; [runbook](runbooks/GPUStewardPidDomainUnproven.md). "
    "It lasts for 10 min after the last doubt.",
    Reason.ALLOCATIONS_STALE: "Look at the kubelet and its pod-resources socket.",
    Reason.LIMIT_INVALID: "Run `gpusteward explain NAMESPACE/POD`. The pod has an Event, too.",
    Reason.POD_UNKNOWN: "Look at the source `names` ([runbook](runbooks/GPUStewardSourceDown.md)).",
    Reason.NAMESPACE_UNKNOWN: "Grant `get namespaces`; `gpusteward check` names the right.",
    Reason.NO_RIGHTS: "Bind the ClusterRole `gpusteward-evict` there; "
    "[runbook](runbooks/GPUNamespaceRightsMissing.md).",
    Reason.UNAUTHORIZED: "Look at the daemon's ServiceAccount and its token.",
    Reason.REFUSED: "Read the detail: an admission policy or a webhook of the cluster refuses evictions.",
    Reason.NOT_OWNER: "Run one gpusteward per node. `journal.lock` names the other process.",
    Reason.NOT_ARMED: "Read the log line `enforcer.not_armed`; [runbook](runbooks/GPUStewardNotArmed.md).",
    Reason.STEP_MISSING: "Read the detail: it names the missing right, driver or kernel. "
    "Provide it, or add `evict` to the ladder.",
    Reason.JOURNAL: "Free the disk, or fix the folder's owner. The daemon tries again by itself.",
    Reason.ADMISSION: "Apply `deploy/enforcer/admission.yaml`, or set `policy.admission: ignore`.",
    Reason.CONFIG: "Fix the config; `gpusteward check` names the key.",
    Reason.NAMES_STALE: "Look at the API server.",
    Reason.FAILED: "Read the detail and the log line `enforcer.ended`. It is retried after 10 s to 5 min.",
    Reason.BREAKER: "Read [breakers](#breakers).",
    Reason.BLOCKED: "Look at the PodDisruptionBudget. It is retried after 10 s to 5 min.",
    Reason.KILL_IMPOSSIBLE: "Forbid `hostPID` and `shareProcessNamespace`, or use `evict`.",
    Reason.CONTAINER_KIND: "Add `evict` to the ladder, or forbid GPUs in init containers.",
    Reason.DELETION_STUCK: "Forbid long termination graces; add `kill` to the ladder.",
}
"""What to do about each reason; of a reason that waits, when it ends."""


def kinds() -> str:
    """Write the table of the kinds."""
    lines = ["| kind | means |", "|---|---|"]
    lines += [f"| *{kind}* | {MEANS[kind]} |" for kind in Kind]
    return "\n".join(lines)


def reasons() -> str:
    """Write the table of all reasons, in the order of their kinds."""
    lines = ["| reason | kind | means: it is over its limit, but | what to do |", "|---|---|---|---|"]
    for kind in Kind:
        lines += [f"| `{reason}` | {kind} | {reason.words} | {REMEDIES[reason]} |" for reason in REASONS_OF[kind]]
    return "\n".join(lines)


def latest(rules: Rules, share: float, period: float) -> float | None:
    """
    Return the seconds after which a holder is due at the latest; None where no bound is promised.

    `share` of each `period` (seconds) is over the limit; readings are at most `JITTER` intervals apart. Each crossing
    of the limit can hide one gap between readings, twice a period. Without crossings no gap is lost.
    """
    capacity, apart = rules.capacity(rules.grace), JITTER * rules.interval
    if share >= 1:
        return capacity + 2 * apart
    gained = (3 * share - 1) / 2 - 2 * apart / period
    return None if gained <= 0 else capacity / gained + period + 2 * apart


def bound(rules: Rules) -> str:
    """Write the table of the bound with these rules, in minutes, rounded up."""
    head = " | ".join(f"every {period} min" for period in PERIODS)
    lines = [f"| over its limit | {head} |", f"|---|{'---|' * len(PERIODS)}"]
    for share in SHARES:
        cells = [_minutes(latest(rules, share, period * MINUTE)) for period in PERIODS]
        lines.append(f"| {f'{share:.0%} of the time' if share < 1 else 'always'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _minutes(seconds: float | None) -> str:
    return "no bound" if seconds is None else f"{ceil(seconds / MINUTE)} min"


def written(page: str) -> str:
    """Put the tables between their markers. Raises ValueError where a marker is missing."""
    tables = {"kinds": kinds(), "bound": bound(rules_of(load(Arguments()))), "reasons": reasons()}
    for name, table in tables.items():
        before, begin, rest = page.partition(f"<!-- {name}: written by `make golden` -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not begin or not end:
            raise ValueError(f"docs/policy.md: the markers of {name} are missing")
        page = f"{before}{begin}\n{table}\n\n{end}{after}"
    return page


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
