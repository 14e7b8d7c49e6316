"""
The policy's vocabulary.

Nothing comes in. What goes out: the enumerations of rules, levels and verdicts.

The rule: each name is defined here once. Metrics, log lines, Events, the journal and the tests take it from here.
"""

from enum import StrEnum
from typing import Self

from exporter.model.ladder import DESTRUCTIVE, ON_A_CONTAINER, Rung

__all__ = [
    "DESTRUCTIVE",
    "ON_A_CONTAINER",
    "REASONS_OF",
    "WRITTEN",
    "Breaker",
    "Kind",
    "Mode",
    "Place",
    "Reason",
    "Rung",
    "Scope",
    "State",
    "Trigger",
]


class Mode(StrEnum):
    """How far the daemon may go, the most restrictive first."""

    OFF = "off"
    OBSERVE = "observe"
    WARN = "warn"
    DRY_RUN = "dry-run"
    ENFORCE = "enforce"

    rank: int
    """The place in the order: a higher rank may do more."""


for _place, _mode in enumerate(Mode):
    _mode.rank = _place


class Trigger(StrEnum):
    """What justifies an action: the declared limit alone, or that a neighbour is also short of memory."""

    LIMIT = "limit"
    CONTENDED = "contended"


class State(StrEnum):
    """The state of one limit holder on one device."""

    OK = "ok"
    OVER = "over"
    GRACE = "grace"
    DUE = "due"
    ACTING = "acting"
    HELD = "held"
    EXEMPT = "exempt"
    UNJUDGED = "unjudged"


class Breaker(StrEnum):
    """What stops all actions of the node until a person closes it; `docs/operate.md` says what opens each."""

    BLAST_RADIUS = "blast_radius"
    ATTRIBUTION = "attribution"
    INTERNAL = "internal"
    JOURNAL = "journal"


class Scope(StrEnum):
    """What a budget counts for."""

    NODE = "node"
    NAMESPACE = "namespace"


class Place(StrEnum):
    """What a hold applies to."""

    NODE = "node"
    NAMESPACE = "namespace"
    POD = "pod"


class Kind(StrEnum):
    """Why a limit holder that is due is not acted on, in four kinds."""

    CHOSEN = "chosen"
    """An operator or a namespace's administrator wrote it, or the declaration says that the limit is not enforced."""
    WAITING = "waiting"
    """It ends by itself within a bound that docs/policy.md states."""
    UNKNOWN = "unknown"
    """The daemon does not see something, or lacks something, that acting needs."""
    EVADED = "evaded"
    """The tenant prevents the action."""


class Reason(StrEnum):
    """
    Why a holder is not acted on, or not judged: one word, and half a sentence that continues after "but".

    The groups, in this order: usage or limit unknown; pod protected; limit only reported; action not permitted or not
    possible; action has to wait.
    """

    _value_: str
    words: str

    def __new__(cls, word: str, words: str = "") -> Self:
        """Make a member that is its `word`."""
        member = str.__new__(cls, word)
        member._value_, member.words = word, words
        return member

    READING_UNKNOWN = "reading_unknown", "its usage is not known in this round"
    PID_DOMAIN = "pid_domain", "it is not proven that the driver's process numbers are those of this node"
    ALLOCATIONS_STALE = "allocations_stale", "the kubelet does not answer, and the limit may depend on its allocations"
    UNDECLARED = "undeclared", "nothing declares how much memory it may use"
    LIMIT_INVALID = "limit_invalid", "its declared limit cannot be used"
    PROCESS_SCOPE = "process_scope", "its limit applies to each process, and none is declared for the container"

    POD_UNKNOWN = "pod_unknown", "the pod is not known yet"
    PRIORITY = "priority", "its priority protects it"
    STATIC_POD = "static_pod", "it is a static pod"
    NAMESPACE = "namespace", "its namespace is protected"
    OWN_POD = "own_pod", "it is this daemon's own pod"
    LABEL = "label", "a label protects it"
    EXEMPT = "exempt", "an annotation exempts it, and its namespace allows that"
    NOT_RUNNING = "not_running", "the pod has ended"
    OTHER_GENERATION = "other_generation", "the memory belongs to an earlier generation of the container"

    REPORT_ONLY = "report_only", "its limit is only reported"
    MIG = "mig", "MIG already bounds its instance, and no other pod is on it"
    EXCLUSIVE = "exclusive", "its pod was given the whole device, and no other pod uses it"
    MPS = "mps", "ending an MPS client can end the other clients of its server"
    UNVERIFIED_BACKEND = "unverified_backend", "the numbers of this vendor were not verified on hardware"

    MODE = "mode", "the mode does not allow it"
    STOPPED = "stopped", "the stop file is present"
    NO_CONSENT = "no_consent", "its namespace does not consent"
    NO_RUNG = "no_rung", "the ladder has no further step"
    THIRD_PARTY = "third_party", "an annotation asks other controllers not to evict it, and its namespace allows that"
    DAEMON_SET = "daemon_set", "policy.protect.daemon_sets protects the pods of DaemonSets"
    BARE_POD = "bare_pod", "policy.protect.bare_pods protects pods without a controller"
    NOT_CONTENDED = "not_contended", "no neighbour is short of memory, and the trigger is contended"
    DRY_RUN = "dry_run", "the mode is dry-run: the action was logged and not performed"

    NAMESPACE_UNKNOWN = "namespace_unknown", "the labels of its namespace are not known"
    NO_RIGHTS = "no_rights", "the API server does not allow evictions in its namespace (RoleBinding missing?)"
    UNAUTHORIZED = "unauthorized", "the API server does not accept the daemon's token"
    REFUSED = "refused", "the API server refused the request"
    NOT_OWNER = "not_owner", "another gpusteward holds this node's lock"
    NOT_ARMED = "not_armed", "the daemon is not ready to act"
    STEP_MISSING = "step_missing", "this node cannot perform the next step of the ladder, and no other one may follow"
    JOURNAL = "journal", "the journal cannot be written"
    ADMISSION = "admission", "an admission policy that bounds evictions is not in force"
    CONFIG = "config", "the config cannot be used"
    NAMES_STALE = "names_stale", "the API server does not answer"
    FAILED = "failed", "the last request failed"
    BREAKER = "breaker", "a breaker is open"

    BLOCKED = "blocked", "a PodDisruptionBudget or a webhook does not allow it"
    KILL_IMPOSSIBLE = "kill_impossible", "the container has no process that can be signalled safely"
    CONTAINER_KIND = "container_kind", "the ladder can only kill, and not an init or ephemeral container"
    DELETION_STUCK = "deletion_stuck", "the pod was deleted more than ten minutes ago, and still uses the memory"

    TERMINATING = "terminating", "the pod was deleted, and ends"
    NOT_OVER_NOW = "not_over_now", "it is not over its limit in this round"
    FEW_READINGS = "few_readings", "fewer than three readings of this device show the excess"
    LAST_LOOK = "last_look", "the last look found it within its limit"
    HOLD_OFF = "hold_off", "the daemon has not watched this node for long enough"
    IN_FLIGHT = "in_flight", "another action is in flight"
    SPACING = "spacing", "another action was requested a moment ago"
    BUDGET_NODE = "budget_node", "the budget of the node is used up"
    BUDGET_NAMESPACE = "budget_namespace", "the budget of its namespace is used up"
    BACK_OFF = "back_off", "its workload was acted on a short time ago, and this pod is newer"
    QUEUED = "queued", "another one comes first"

    @property
    def kind(self) -> Kind:
        """Which of the four kinds it is."""
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
        Reason.REPORT_ONLY,
        Reason.MIG,
        Reason.EXCLUSIVE,
        Reason.MPS,
        Reason.UNVERIFIED_BACKEND,
        Reason.MODE,
        Reason.STOPPED,
        Reason.NO_CONSENT,
        Reason.NO_RUNG,
        Reason.THIRD_PARTY,
        Reason.DAEMON_SET,
        Reason.BARE_POD,
        Reason.NOT_CONTENDED,
        Reason.DRY_RUN,
    ),
    Kind.WAITING: (
        Reason.NOT_RUNNING,
        Reason.OTHER_GENERATION,
        Reason.TERMINATING,
        Reason.NOT_OVER_NOW,
        Reason.FEW_READINGS,
        Reason.LAST_LOOK,
        Reason.HOLD_OFF,
        Reason.IN_FLIGHT,
        Reason.SPACING,
        Reason.BUDGET_NODE,
        Reason.BUDGET_NAMESPACE,
        Reason.BACK_OFF,
        Reason.QUEUED,
    ),
    Kind.UNKNOWN: (
        Reason.READING_UNKNOWN,
        Reason.PID_DOMAIN,
        Reason.ALLOCATIONS_STALE,
        Reason.LIMIT_INVALID,
        Reason.POD_UNKNOWN,
        Reason.NAMESPACE_UNKNOWN,
        Reason.NO_RIGHTS,
        Reason.UNAUTHORIZED,
        Reason.REFUSED,
        Reason.NOT_OWNER,
        Reason.NOT_ARMED,
        Reason.STEP_MISSING,
        Reason.JOURNAL,
        Reason.ADMISSION,
        Reason.CONFIG,
        Reason.NAMES_STALE,
        Reason.FAILED,
        Reason.BREAKER,
    ),
    Kind.EVADED: (
        Reason.BLOCKED,
        Reason.KILL_IMPOSSIBLE,
        Reason.CONTAINER_KIND,
        Reason.DELETION_STUCK,
    ),
}
"""Each reason has one kind; a reason that is missing here, or stands here twice, fails a test."""
_KIND_OF = {reason: kind for kind, reasons in REASONS_OF.items() for reason in reasons}
WRITTEN = frozenset(
    {
        Reason.MODE,
        Reason.STOPPED,
        Reason.NO_CONSENT,
        Reason.THIRD_PARTY,
        Reason.DAEMON_SET,
        Reason.BARE_POD,
        Reason.UNVERIFIED_BACKEND,
    }
)
"""Chosen reasons that an operator or an administrator of a namespace writes: their end starts a new grace. The others
depend on the declaration or on the other pods of the device, and could come and go all the time."""
