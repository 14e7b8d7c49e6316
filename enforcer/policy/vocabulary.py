"""
The enforcer's words.

What comes in: nothing. What goes out: the enumerations in which rules, evidence and verdicts are told.

The law: each word is said once. Metrics, log lines, Events, the journal and the tests take it from here.
"""

from collections.abc import Iterable
from enum import StrEnum


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


def most_restrictive(modes: Iterable[Mode]) -> Mode:
    """Return the mode that wins over all others: the one that may do least. There is at least one."""
    return min(modes, key=lambda mode: mode.rank)


class Rung(StrEnum):
    """What can be done, the gentlest first."""

    NOTIFY = "notify"
    FENCE = "fence"
    EVICT = "evict"
    KILL = "kill"


DESTRUCTIVE = frozenset({Rung.EVICT, Rung.KILL})
"""Rungs after which a workload's work since its last checkpoint is gone: these want the namespace's consent."""


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


class Reason(StrEnum):
    """
    Why nothing is done, or nothing can be said: one word for each refusal.

    The first group says that a subject cannot be judged, the second that it must never be acted on, the third that its
    limit is only reported, the fourth that this is not the moment.
    """

    READING_UNKNOWN = "reading_unknown"
    READING_GAP = "reading_gap"
    PID_DOMAIN = "pid_domain"
    ALLOCATIONS_STALE = "allocations_stale"
    LIMIT_INVALID = "limit_invalid"
    PROCESS_SCOPE = "process_scope"

    POD_UNKNOWN = "pod_unknown"
    PRIORITY = "priority"
    STATIC_POD = "static_pod"
    NAMESPACE = "namespace"
    OWN_POD = "own_pod"
    LABEL = "label"
    EXEMPT = "exempt"
    TERMINATING = "terminating"
    NOT_RUNNING = "not_running"
    OTHER_GENERATION = "other_generation"
    CONTAINER_KIND = "container_kind"
    THIRD_PARTY = "third_party"
    DAEMON_SET = "daemon_set"
    BARE_POD = "bare_pod"

    REPORT_ONLY = "report_only"
    MIG = "mig"
    EXCLUSIVE = "exclusive"
    MPS = "mps"
    CLAIM_SHARED = "claim_shared"
    UNVERIFIED_BACKEND = "unverified_backend"

    MODE = "mode"
    STOPPED = "stopped"
    NOT_OWNER = "not_owner"
    NOT_ARMED = "not_armed"
    JOURNAL = "journal"
    ADMISSION = "admission"
    NAMESPACE_UNKNOWN = "namespace_unknown"
    NO_CONSENT = "no_consent"
    NO_RUNG = "no_rung"
    NAMES_STALE = "names_stale"
    OWNER_UNKNOWN = "owner_unknown"
    NOT_OVER_NOW = "not_over_now"
    NOT_CONTENDED = "not_contended"
    STRIKES = "strikes"
    BLOCKED = "blocked"
    HOLD_OFF = "hold_off"
    BREAKER = "breaker"
    IN_FLIGHT = "in_flight"
    SPACING = "spacing"
    BUDGET_NODE = "budget_node"
    BUDGET_NAMESPACE = "budget_namespace"
    BUDGET_WORKLOAD = "budget_workload"
    QUEUED = "queued"
