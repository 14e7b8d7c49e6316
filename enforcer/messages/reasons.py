"""
Reasons in words, for people who are told that nothing is done.

What comes in: a reason. What goes out: half a sentence that goes on from "but".

The law: each reason has its words, and they say what would change it where somebody can.
"""

from collections.abc import Mapping

from enforcer.policy.vocabulary import Reason

WORDS: Mapping[Reason, str] = {
    Reason.READING_UNKNOWN: "what it uses is not known in this round",
    Reason.READING_GAP: "nothing was read of it for longer than two rounds",
    Reason.PID_DOMAIN: "it is not proven that the driver numbers processes as this node does",
    Reason.ALLOCATIONS_STALE: "the kubelet does not answer, and limits may depend on what it handed out",
    Reason.LIMIT_INVALID: "its limit cannot be used as it is declared",
    Reason.PROCESS_SCOPE: "its limit is each process's, and of the container nothing is declared",
    Reason.POD_UNKNOWN: "Kubernetes told nothing of this pod",
    Reason.PRIORITY: "its priority protects it",
    Reason.STATIC_POD: "it is a static pod",
    Reason.NAMESPACE: "its namespace is protected",
    Reason.OWN_POD: "it is this daemon's own pod",
    Reason.LABEL: "a label protects it",
    Reason.EXEMPT: "it is exempt by annotation, with its namespace's consent",
    Reason.TERMINATING: "it terminates already",
    Reason.NOT_RUNNING: "it is not running",
    Reason.OTHER_GENERATION: "it is not the present generation of its container",
    Reason.CONTAINER_KIND: "init and ephemeral containers are left alone",
    Reason.THIRD_PARTY: "an annotation for another controller asks that it is not evicted",
    Reason.DAEMON_SET: "its DaemonSet would start it here again at once",
    Reason.BARE_POD: "it has no controller that would start it again",
    Reason.REPORT_ONLY: "its limit is only reported",
    Reason.MIG: "MIG keeps its instance within bounds already",
    Reason.EXCLUSIVE: "it has the device for itself",
    Reason.MPS: "ending an MPS client may take its neighbours along",
    Reason.CLAIM_SHARED: "several pods share the claim, and nobody declared whose excess it is",
    Reason.UNVERIFIED_BACKEND: "numbers of this vendor's devices were not verified on hardware",
    Reason.MODE: "the mode does not allow it",
    Reason.STOPPED: "the stop file says that nothing is to be done",
    Reason.NOT_OWNER: "another gpusteward holds this node's lock",
    Reason.NOT_ARMED: "this daemon is not ready to act",
    Reason.JOURNAL: "the journal cannot be written, and what cannot be noted is not done",
    Reason.ADMISSION: "the admission policy that bounds evictions is not in force",
    Reason.NAMESPACE_UNKNOWN: "the labels of its namespace cannot be read",
    Reason.NO_CONSENT: "its namespace does not consent",
    Reason.NO_RUNG: "the ladder has no further rung",
    Reason.NAMES_STALE: "the API server does not answer, and its pods may be others by now",
    Reason.OWNER_UNKNOWN: "which workload it belongs to, whose budget counts, is not known yet",
    Reason.NOT_OVER_NOW: "at this moment it is not above its limit and tolerance",
    Reason.NOT_CONTENDED: "no neighbour is short of what it may have",
    Reason.STRIKES: "its workload has not been above its limit often enough",
    Reason.BLOCKED: "a PodDisruptionBudget does not allow it",
    Reason.HOLD_OFF: "the daemon has not watched this node for long enough",
    Reason.BREAKER: "a breaker is open, and stops all actions on this node",
    Reason.IN_FLIGHT: "another action has not ended",
    Reason.SPACING: "the last action ended a moment ago",
    Reason.BUDGET_NODE: "the budget of the node is used up",
    Reason.BUDGET_NAMESPACE: "the budget of its namespace is used up",
    Reason.BUDGET_WORKLOAD: "the budget of its workload is used up: it comes back, and does it again",
    Reason.QUEUED: "another one comes first",
}
