"""The enforcement board: exceeded limits, actions and refusals, budgets and breakers."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import ALARM, POINTS, bars, lines, stat, table, timeline
from grafana.panels import Row
from grafana.places import ENFORCEMENT, NAMESPACE

OPEN = {1: ("open", "red")}

BOARD = Board(
    ENFORCEMENT,
    "What the policy sees, does and holds back, with its budgets and breakers. It needs `gpusteward run`.",
    (
        stat("Modes", width=8, named=True)
        .about("Nodes by effective mode, and by configured mode.")
        .query("count by (mode) (gpusteward_enforcement_mode)", "{{mode}}")
        .query("count by (mode) (gpusteward_configured_mode)", "asked for: {{mode}}"),
        shared.OVER,
        stat("Open breakers", steps=ALARM)
        .about("An open breaker stops all actions of its node.")
        .query("sum(gpusteward_breaker_open)"),
        Row("Pods over their limit"),
        shared.WHO_IS_OVER,
        bars("Time over limit", "s")
        .about("Seconds over the limit in each step, summed over the containers of a namespace.")
        .query(e.growth("namespace", "gpusteward_container_over_limit_seconds_total"), "{{namespace}}", to=NAMESPACE),
        lines("Containers by state", stacked=True)
        .about("Containers in any state but ok.")
        .query('count by (state) (gpusteward_container_state{state!="ok"})', "{{state}}"),
        lines("Held, by kind and reason", stacked=True)
        .about("Containers whose action is due and held. docs/reference/reasons.md has the fix for each reason.")
        .query("sum by (kind, reason) (gpusteward_held_containers)", "{{kind}}: {{reason}}"),
        bars("Due and not acted on, by kind and reason", "s")
        .about("Seconds in each step in which an action was due and did not happen, summed over all containers.")
        .about("Kinds: chosen, waiting, unknown, evaded. Unknown and evaded raise an alert after 15 minutes.")
        .query(e.growth("kind, reason", e.DUE), "{{kind}}: {{reason}}"),
        table("Due and not acted on, by pod", "namespace, pod, kind, reason", width=12)
        .about("Duration within the chosen time.")
        .column("Due", e.growth("namespace, pod, kind, reason", e.DUE, "$__range"), "s"),
        Row("Actions"),
        bars("Actions", width=8)
        .about("Actions started in each step.")
        .query(e.growth("action", "gpusteward_actions_total"), "{{action}}"),
        bars("Failures", width=8)
        .about("Actions that failed or had no effect in time, by cause.")
        .query(e.growth("action, reason", "gpusteward_action_failures_total"), "{{action}}: {{reason}}"),
        bars("Dry runs", width=8)
        .about("Actions that mode enforce would have started.")
        .query(e.growth("action", "gpusteward_dry_run_actions_total"), "{{action}}"),
        bars("Refusals")
        .about("Number of times in each step that an action was held, or that its reason changed.")
        .query(e.growth("kind, reason", "gpusteward_refusals_total"), "{{kind}}: {{reason}}"),
        lines("Time from the first reading over the limit to the effect", "s")
        .about("90 % of the actions took at most this long.")
        .query(e.quantile(0.9, "action", "gpusteward_action_duration_seconds"), "{{action}}"),
        table("Actions by namespace", "namespace, action", width=12)
        .about("In the chosen time.")
        .column("Begun", e.growth("namespace, action", "gpusteward_actions_total", "$__range"), "short")
        .column("Failed", e.growth("namespace, action", "gpusteward_action_failures_total", "$__range"), "short", ALARM)
        .column("Dry runs", e.growth("namespace, action", "gpusteward_dry_run_actions_total", "$__range"), "short"),
        table("Held now, by namespace", "namespace, kind, reason", width=12)
        .about("Number of containers, by reason.")
        .column("Held", "sum by (namespace, kind, reason) (gpusteward_held_containers)", "short"),
        Row("What stops actions"),
        timeline("Open breakers", OPEN)
        .about("Open breakers by node, over time.")
        .query("max by (node, breaker) (gpusteward_breaker_open) == 1", "{{node}} {{breaker}}"),
        lines("Budgets")
        .about("Actions left for the node with the fewest left, and for the namespace with the fewest left.")
        .at_most(POINTS)
        .query("min by (scope) (gpusteward_budget_remaining)", "{{scope}}"),
        table("Missing rights", "node, namespace", width=12)
        .about("Namespaces that consent to evictions, and in which gpusteward has no right to evict.")
        .column("Missing", "max by (node, namespace) (gpusteward_namespace_rights_missing)", "short"),
        bars("Warnings that were not delivered")
        .about("Warnings in each step that the API server did not accept within a minute. The grace of the")
        .about("container runs anyway.")
        .query(e.growth("namespace", "gpusteward_warnings_undelivered_total"), "{{namespace}}", to=NAMESPACE),
    ),
    (shared.ACTIONS,),
)
