"""
The enforcer's words.

What comes in: nothing. What goes out: the enumerations in which rules, evidence and verdicts are told.

The law: each word is said once. Metrics, log lines, Events, the journal and the tests take it from here.
"""

from enum import StrEnum
from typing import Self

from exporter.model.ladder import DESTRUCTIVE, ON_A_CONTAINER, Rung

__all__ = ["DESTRUCTIVE", "MANUAL", "ON_A_CONTAINER", "Breaker", "Mode", "Reason", "Rung", "Scope", "State", "Trigger"]


class Mode(StrEnum):
    """How far the daemon may go, the most restrictive first."""

    OFF = "off"
    OBSERVE = "observe"
    WARN = "warn"
    DRY_RUN = "dry-run"
    ENFORCE = "enforce"

    @property
    def rank(self) -> int:
        """The place in the order: a higher rank may do more."""
        return _MODES.index(self)


_MODES = tuple(Mode)


class Trigger(StrEnum):
    """What justifies more than a notice: that a neighbour is denied its due, or the declared limit alone."""

    CONTENDED = "contended"
    LIMIT = "limit"


class State(StrEnum):
    """Where a subject stands with the policy now."""

    OK = "ok"
    OVER = "over"
    GRACE = "grace"
    DUE = "due"
    ACTING = "acting"
    HELD = "held"
    EXEMPT = "exempt"
    UNJUDGED = "unjudged"


class Breaker(StrEnum):
    """What stops all actions of the node; `docs/policy.md` says what opens and closes each."""

    BLAST_RADIUS = "blast_radius"
    EFFECTIVENESS = "effectiveness"
    API = "api"
    ATTRIBUTION = "attribution"
    SAMPLER = "sampler"
    CONFIG = "config"
    INTERNAL = "internal"
    JOURNAL = "journal"


MANUAL = (Breaker.BLAST_RADIUS, Breaker.EFFECTIVENESS, Breaker.API, Breaker.INTERNAL, Breaker.JOURNAL)
"""Breakers that a person closes: these outlive the daemon."""


class Scope(StrEnum):
    """Whom a budget counts for."""

    NODE = "node"
    NAMESPACE = "namespace"
    WORKLOAD = "workload"


class Kind(StrEnum):
    """Whose doing it is that a limit holder is not acted on, and so what has to happen before it is."""

    CHOSEN = "chosen"
    """An operator or a namespace's administrator wrote it, or by its declaration the limit is not for enforcing."""
    WAITING = "waiting"
    """It ends by itself within a bound."""
    UNKNOWN = "unknown"
    """The daemon does not see something, or lacks something, that acting needs."""
    EVADED = "evaded"
    """The pod's own author prevents it."""


class Reason(StrEnum):
    """
    Why nothing is done, or nothing can be said: one word for each refusal, and half a sentence that goes on from "but".

    The first group says that a limit holder cannot be judged, the second that it must never be acted on, the third that
    its limit is only reported, the fourth that this is not the moment.
    """

    _value_: str
    words: str

    def __new__(cls, word: str, words: str = "") -> Self:
        """Make a member that is its `word`."""
        member = str.__new__(cls, word)
        member._value_, member.words = word, words
        return member

    READING_UNKNOWN = "reading_unknown", "what it uses is not known in this round"
    READING_GAP = "reading_gap", "nothing was read of it for longer than two rounds"
    PID_DOMAIN = "pid_domain", "it is not proven that the driver numbers processes as this node does"
    ALLOCATIONS_STALE = "allocations_stale", "the kubelet does not answer, and limits may depend on what it handed out"
    UNDECLARED = "undeclared", "nothing declares how much memory it may hold"
    LIMIT_INVALID = "limit_invalid", "its limit cannot be used as it is declared"
    PROCESS_SCOPE = "process_scope", "its limit is each process's, and of the container nothing is declared"

    POD_UNKNOWN = "pod_unknown", "Kubernetes told nothing of this pod"
    PRIORITY = "priority", "its priority protects it"
    STATIC_POD = "static_pod", "it is a static pod"
    NAMESPACE = "namespace", "its namespace is protected"
    OWN_POD = "own_pod", "it is this daemon's own pod"
    LABEL = "label", "a label protects it"
    EXEMPT = "exempt", "it is exempt by annotation, with its namespace's consent"
    TERMINATING = "terminating", "it terminates already"
    NOT_RUNNING = "not_running", "it is not running"
    OTHER_GENERATION = "other_generation", "it is not the present generation of its container"
    CONTAINER_KIND = "container_kind", "init and ephemeral containers are left alone"
    THIRD_PARTY = "third_party", "an annotation for another controller asks that it is not evicted"
    DAEMON_SET = "daemon_set", "its DaemonSet would start it here again at once"
    BARE_POD = "bare_pod", "it has no controller that would start it again"

    REPORT_ONLY = "report_only", "its limit is only reported"
    MIG = "mig", "MIG keeps its instance within bounds already"
    EXCLUSIVE = "exclusive", "it has the device for itself"
    MPS = "mps", "ending an MPS client may take its neighbours along"
    CLAIM_SHARED = "claim_shared", "several pods share the claim, and nobody declared whose excess it is"
    UNVERIFIED_BACKEND = "unverified_backend", "numbers of this vendor's devices were not verified on hardware"

    MODE = "mode", "the mode does not allow it"
    STOPPED = "stopped", "the stop file says that nothing is to be done"
    NOT_OWNER = "not_owner", "another gpusteward holds this node's lock"
    NOT_ARMED = "not_armed", "this daemon is not ready to act"
    JOURNAL = "journal", "the journal cannot be written, and what cannot be noted is not done"
    ADMISSION = "admission", "the admission policy that bounds evictions is not in force"
    NAMESPACE_UNKNOWN = "namespace_unknown", "the labels of its namespace cannot be read"
    NO_CONSENT = "no_consent", "its namespace does not consent"
    NO_RUNG = "no_rung", "the ladder has no further rung"
    NAMES_STALE = "names_stale", "the API server does not answer, and its pods may be others by now"
    OWNER_UNKNOWN = "owner_unknown", "which workload it belongs to, whose budget counts, is not known yet"
    NOT_OVER_NOW = "not_over_now", "at this moment it is not above its limit and tolerance"
    NOT_CONTENDED = "not_contended", "no neighbour is short of what it may have"
    STRIKES = "strikes", "its workload has not been above its limit often enough"
    BLOCKED = "blocked", "a PodDisruptionBudget does not allow it"
    HOLD_OFF = "hold_off", "the daemon has not watched this node for long enough"
    BREAKER = "breaker", "a breaker is open, and stops all actions on this node"
    IN_FLIGHT = "in_flight", "another action has not ended"
    SPACING = "spacing", "the last action ended a moment ago"
    BUDGET_NODE = "budget_node", "the budget of the node is used up"
    BUDGET_NAMESPACE = "budget_namespace", "the budget of its namespace is used up"
    BUDGET_WORKLOAD = "budget_workload", "the budget of its workload is used up: it comes back, and does it again"
    QUEUED = "queued", "another one comes first"

    @property
    def kind(self) -> Kind:
        """Whose doing it is."""
        return _KIND_OF[self]


REASONS_OF = {
    Kind.CHOSEN: (
        Reason.UNDECLARED,
        Reason.PROCESS_SCOPE,
        Reason.PRIORITY,
        Reason.STATIC_POD,
        Reason.NAMESPACE,
        Reason.OWN_POD,
        Reason.LABEL,
        Reason.EXEMPT,
        Reason.DAEMON_SET,
        Reason.BARE_POD,
        Reason.REPORT_ONLY,
        Reason.MIG,
        Reason.EXCLUSIVE,
        Reason.MPS,
        Reason.UNVERIFIED_BACKEND,
        Reason.MODE,
        Reason.STOPPED,
        Reason.NO_CONSENT,
        Reason.NO_RUNG,
        Reason.NOT_CONTENDED,
        Reason.STRIKES,
    ),
    Kind.WAITING: (
        Reason.TERMINATING,
        Reason.NOT_RUNNING,
        Reason.OTHER_GENERATION,
        Reason.NOT_OVER_NOW,
        Reason.HOLD_OFF,
        Reason.IN_FLIGHT,
        Reason.SPACING,
        Reason.BUDGET_NODE,
        Reason.BUDGET_NAMESPACE,
        Reason.BUDGET_WORKLOAD,
        Reason.QUEUED,
    ),
    Kind.UNKNOWN: (
        Reason.READING_UNKNOWN,
        Reason.READING_GAP,
        Reason.PID_DOMAIN,
        Reason.ALLOCATIONS_STALE,
        Reason.LIMIT_INVALID,
        Reason.POD_UNKNOWN,
        Reason.NOT_OWNER,
        Reason.NOT_ARMED,
        Reason.JOURNAL,
        Reason.ADMISSION,
        Reason.NAMESPACE_UNKNOWN,
        Reason.NAMES_STALE,
        Reason.OWNER_UNKNOWN,
        Reason.BREAKER,
    ),
    Kind.EVADED: (
        Reason.CONTAINER_KIND,
        Reason.THIRD_PARTY,
        Reason.CLAIM_SHARED,
        Reason.BLOCKED,
    ),
}
"""Each reason is of one kind; one that is missing here, or here twice, fails a test."""
_KIND_OF = {reason: kind for kind, reasons in REASONS_OF.items() for reason in reasons}
