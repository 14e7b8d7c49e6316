"""
The page of reasons: docs/reference/reasons.md.

What comes in: the policy's reasons with their kinds and meanings. What goes out: the text of the page.

The rule: a reason's meaning and kind are in `enforcer.policy.vocabulary`. What to do about it is in this module, and a
reason without a remedy fails.
"""

from enforcer.policy.vocabulary import REASONS_OF, Kind, Reason

HEAD = """\
# Reasons

Find out why a pod over its limit is not acted on, and what to do. The same word stands in `gpusteward_held_containers`,
`gpusteward_refusals_total`, the log, Events, `gpusteward preview`, and on the node page.
[The policy](../policy.md#kinds-of-reasons) says what the kinds mean.
"""
REMEDIES = {
    Reason.UNDECLARED: "Declare a limit ([how](../sharing-systems.md)), or set `limits.fair_share: true`.",
    Reason.PROCESS_SCOPE: "Declare a limit for the container, or set `limits.mps_scope: container`.",
    Reason.PRIORITY: "Use an ordinary PriorityClass, or raise `policy.protect.priority_at_least`.",
    Reason.STATIC_POD: "Change its manifest on the node: an eviction removes only its mirror.",
    Reason.NAMESPACE: "Change `policy.protect.namespaces`. The daemon's own namespace stays protected.",
    Reason.OWN_POD: "Nothing.",
    Reason.LABEL: "Change `policy.protect.labels`. Choose labels that tenants cannot set.",
    Reason.EXEMPT: "Remove the label `gpusteward.io/allow-pod-exemption` from the namespace.",
    Reason.REPORT_ONLY: "Nothing: another system enforces it, or it is a hint ([systems.md](../systems.md)).",
    Reason.MIG: "Nothing: the hardware bounds the instance.",
    Reason.EXCLUSIVE: "Nothing: no neighbour is harmed.",
    Reason.MPS: "Set `policy.mps: evict`, if your MPS server survives the end of a client ([MPS](../policy.md#mps)).",
    Reason.UNVERIFIED_BACKEND: "Compare the numbers with the vendor's tool, then add it to `policy.trusted_vendors`.",
    Reason.MODE: "Raise `policy.mode`, or the namespace's label `gpusteward.io/mode`.",
    Reason.STOPPED: "Remove the file of `policy.stop_file`.",
    Reason.NO_CONSENT: "`kubectl label --overwrite namespace NS gpusteward.io/mode=enforce`, and add the RoleBinding.",
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
    Reason.BUDGET_NODE: "Find out why so many exceed. One more is free after 10 min at most (`policy.budgets.node`).",
    Reason.BUDGET_NAMESPACE: "As above; `policy.budgets.namespace`.",
    Reason.BACK_OFF: "Tell the owner: the workload comes back and exceeds again. It ends after 1 to 10 min.",
    Reason.QUEUED: "Nothing: the longest due is first ([bound](../policy.md#when-the-action-follows)).",
    Reason.READING_UNKNOWN: "Look at `gpusteward_source_up` and the log line `sampling.fault`. "
    "If one container is concerned for long, look at its processes.",
    Reason.PID_DOMAIN: "Run the daemon with `hostPID: true`; [runbook](../runbooks/GPUStewardPidDomainUnproven.md). "
    "It lasts for 10 min after the last doubt.",
    Reason.ALLOCATIONS_STALE: "Look at the kubelet and its pod-resources socket.",
    Reason.LIMIT_INVALID: "Run `gpusteward explain NAMESPACE/POD`. The pod has an Event, too.",
    Reason.POD_UNKNOWN: "Look at the source `names` ([runbook](../runbooks/GPUStewardSourceDown.md)).",
    Reason.NAMESPACE_UNKNOWN: "In the first seconds after a start, or with the first pod of a namespace, nothing: they "
    "are being read. If it lasts, look at the API server; `gpusteward check` says whether `get namespaces` is granted.",
    Reason.NO_RIGHTS: "Bind the ClusterRole `gpusteward-evict` there, or `gpusteward-look` where the ladder has no "
    "`evict`; [runbook](../runbooks/GPUNamespaceRightsMissing.md).",
    Reason.UNAUTHORIZED: "Look at the daemon's ServiceAccount and its token.",
    Reason.REFUSED: "Read the detail: an admission policy or a webhook of the cluster refuses evictions.",
    Reason.NOT_OWNER: "Run one gpusteward per node. `journal.lock` names the other process.",
    Reason.NOT_ARMED: "Read the log line `enforcer.not_armed`; [runbook](../runbooks/GPUStewardNotArmed.md).",
    Reason.STEP_MISSING: "Read the detail: it names the missing right, driver or kernel. "
    "Provide it, or add `evict` to the ladder.",
    Reason.JOURNAL: "Free the disk, or fix the folder's owner. The daemon tries again by itself.",
    Reason.ADMISSION: "Apply `deploy/enforcer/admission.yaml`, or set `policy.admission: ignore`.",
    Reason.CONFIG: "Fix the config; `gpusteward check` names the key.",
    Reason.NAMES_STALE: "Look at the API server.",
    Reason.FAILED: "Read the detail and the log line `enforcer.request_result`. It is retried after 10 s to 5 min.",
    Reason.BREAKER: "Read [breakers](../operate.md#breakers).",
    Reason.BLOCKED: "Look at the PodDisruptionBudget. It is retried after 10 s to 5 min.",
    Reason.KILL_IMPOSSIBLE: "Forbid `hostPID` and `shareProcessNamespace`, or use `evict`.",
    Reason.CONTAINER_KIND: "Add `evict` to the ladder, or forbid GPUs in init containers.",
    Reason.DELETION_STUCK: "Forbid long termination graces; add `kill` to the ladder.",
}
"""What to do about each reason; of a reason that waits, when it ends."""


def page() -> str:
    """Write the page: a table for each kind."""
    parts = [HEAD]
    for kind in Kind:
        head = "| reason | means: it is over its limit, but | what to do |"
        parts.append(f"\n## {kind.capitalize()}\n\n{head}\n|---|---|---|\n")
        parts += [f"| `{reason}` | {reason.words} | {REMEDIES[reason]} |\n" for reason in REASONS_OF[kind]]
    return "".join(parts)
