"""The policy and the daemons: who is over, what was done and why not, and whether what you see can be trusted."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Annotation, Board
from grafana.panels import ALARM, STALE, Column, Query, Row, lines, stat, table, timeline
from grafana.places import ENFORCEMENT, NAMESPACE, NODE

OPEN = {1: ("open", "red")}
UP = {0: ("down", "red"), 1: ("up", "green")}

BOARD = Board(
    ENFORCEMENT,
    "What the policy sees, does and refuses to do, with its budgets and breakers; and the health of the "
    "daemons themselves. "
    "The policy's part wants `gpusteward run`.",
    (
        stat(
            "Modes",
            "Nodes by their effective mode, and by the one that their config asks for.",
            "short",
            Query(e.MODES, "{{mode}}"),
            Query(e.MODES_ASKED, "asked for: {{mode}}"),
            width=8,
        ),
        shared.OVER,
        stat("Open breakers", "Each stops all actions of its node.", "short", Query(e.BREAKERS_OPEN), steps=ALARM),
        stat("Age, the oldest", "Of the oldest snapshot of all nodes.", "s", Query(e.AGE_WORST), steps=STALE),
        stat(
            "Sources down",
            "Sources without a whole answer in the latest round.",
            "short",
            Query(e.SOURCES_DOWN),
            steps=ALARM,
        ),
        Row("Who is over"),
        shared.WHO_IS_OVER,
        lines(
            "Time over limit",
            "Seconds over the limit in each step, of all of a namespace's containers together.",
            "s",
            Query(e.OVER_SECONDS_BY_NAMESPACE, "{{namespace}}", to=NAMESPACE),
            bars=True,
        ),
        lines(
            "Subjects by state",
            "Those that are not ok.",
            "short",
            Query(e.SUBJECTS_BY_STATE, "{{state}}"),
            stacked=True,
        ),
        lines(
            "Held, by reason",
            "Who would be acted on now, but for this reason (docs/policy.md says what to do about each).",
            "short",
            Query(e.HELD, "{{reason}}"),
            stacked=True,
        ),
        Row("What was done"),
        lines("Actions", "Actions begun in each step.", "short", Query(e.ACTIONS, "{{action}}"), bars=True, width=8),
        lines(
            "Failures",
            "Actions that did not come about, or had no effect in time.",
            "short",
            Query(e.FAILURES, "{{action}}"),
            bars=True,
            width=8,
        ),
        lines(
            "Rehearsed",
            "Actions that would have been begun, had the mode been enforce.",
            "short",
            Query(e.REHEARSED, "{{action}}"),
            bars=True,
            width=8,
        ),
        lines(
            "Refusals",
            "How often a subject came to be held, or for another reason, in each step.",
            "short",
            Query(e.REFUSALS, "{{reason}}"),
            bars=True,
        ),
        lines(
            "From the first reading over the limit to the effect",
            "90 of 100 actions took at most so long.",
            "s",
            Query(e.ACTION_DURATION, "{{action}}"),
        ),
        table(
            "Actions by namespace",
            "In the chosen time.",
            ("namespace", "action"),
            Column("Begun", e.ACTIONS_IN_RANGE, "short"),
            Column("Failed", e.FAILURES_IN_RANGE, "short", ALARM),
            Column("Rehearsed", e.REHEARSED_IN_RANGE, "short"),
            links={"namespace": NAMESPACE},
            width=12,
        ),
        table(
            "Held now, by namespace",
            "How many, and for which reason.",
            ("namespace", "reason"),
            Column("Held", e.HELD_BY_NAMESPACE, "short"),
            links={"namespace": NAMESPACE},
            width=12,
        ),
        Row("What stops it"),
        timeline(
            "Open breakers",
            "Which breaker of which node was open, and when.",
            Query(e.BREAKERS, "{{node}} {{breaker}}"),
            OPEN,
        ),
        lines(
            "Budgets",
            "Actions that are left: of the node, and of its most spent namespace and workload.",
            "short",
            Query(e.BUDGETS, "{{node}} {{scope}}"),
        ),
        Row("Health of the daemons"),
        stat("Daemons", "That were scraped.", "short", Query(e.DAEMONS)),
        stat(
            "Without a proven PID domain",
            "Daemons that cannot tell whether the driver's process numbers are the host's: these attribute nothing.",
            "short",
            Query(e.UNPROVEN),
            steps=ALARM,
            width=8,
        ),
        stat(
            "Refused configs",
            "Daemons whose config file cannot be used as it is: the one before it is in force.",
            "short",
            Query(e.CONFIGS_REFUSED),
            steps=ALARM,
        ),
        stat("Versions", "Daemons by version.", "short", Query(e.BUILDS, "{{version}}"), width=8),
        lines(
            "Age of the snapshot",
            "Since the round began that is shown.",
            "s",
            Query(e.AGE_BY_NODE, "{{node}}", to=NODE),
        ),
        timeline("Sources", "Whether each source answered as a whole.", Query(e.SOURCES, "{{node}} {{source}}"), UP),
        lines(
            "Incomplete rounds",
            "Rounds in which a source could not answer all it was asked, by reason.",
            "short",
            Query(e.INCOMPLETE, "{{reason}}"),
            bars=True,
        ),
        lines(
            "Failed rounds",
            "Rounds that ended in an unexpected error: a bug of ours, please report it.",
            "short",
            Query(e.ROUND_FAILURES, "{{node}}"),
            bars=True,
        ),
        lines("Age of the config", "Since each daemon took the one in force.", "s", Query(e.CONFIG_AGE, "{{node}}")),
        lines("Rounds per second", "0.2 with the default interval of 5 s.", "ops", Query(e.ROUNDS, "{{node}}")),
        lines("Duration of rounds", "99 of 100 took at most so long.", "s", Query(e.ROUND_DURATION, "{{node}}")),
        lines(
            "Entries of the driver's process lists",
            "Where each was counted, and why.",
            "short",
            Query(e.ENTRIES, "{{attribution}}"),
            stacked=True,
        ),
    ),
    (Annotation("Actions", e.LAST_ACTION, "red", "action", at_value=True),),
)
