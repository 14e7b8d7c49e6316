"""The enforcement board: exceeded limits, actions and refusals, and the health of the daemons."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import ALARM, STALE, bars, lines, stat, table, timeline
from grafana.panels import Row
from grafana.places import ENFORCEMENT, NAMESPACE, NODE

OPEN = {1: ("open", "red")}
UP = {0: ("down", "red"), 1: ("up", "green")}

BOARD = Board(
    ENFORCEMENT,
    "What the policy sees, does and refuses to do, with its budgets and breakers; and the health of the "
    "daemons themselves. The policy's part wants `gpusteward run`.",
    (
        stat("Modes", width=8, named=True)
        .about("Nodes by their effective mode, and by the one that their config asks for.")
        .query("count by (mode) (gpusteward_enforcement_mode)", "{{mode}}")
        .query("count by (mode) (gpusteward_configured_mode)", "asked for: {{mode}}"),
        shared.OVER,
        stat("Open breakers", steps=ALARM)
        .about("Each stops all actions of its node.")
        .query("sum(gpusteward_breaker_open)"),
        stat("Age, the oldest", "s", STALE).about("Of the oldest snapshot of all nodes.").query(f"max({e.AGE})"),
        stat("Sources down", steps=ALARM)
        .about("Sources without a whole answer in the latest round.")
        .query("sum(gpusteward_source_up == bool 0)"),
        Row("Who is over"),
        shared.WHO_IS_OVER,
        bars("Time over limit", "s")
        .about("Seconds over the limit in each step, of all of a namespace's containers together.")
        .query(e.growth("namespace", "gpusteward_container_over_limit_seconds_total"), "{{namespace}}", to=NAMESPACE),
        lines("Containers by state", stacked=True)
        .about("Containers that are not ok.")
        .query('count by (state) (gpusteward_container_state{state!="ok"})', "{{state}}"),
        lines("Held, by kind and reason", stacked=True)
        .about("Containers for which an action is due and held. docs/policy.md says what to do about each reason.")
        .query("sum by (kind, reason) (gpusteward_held)", "{{kind}}: {{reason}}"),
        bars("Due and not acted on, by kind and reason", "s")
        .about("Seconds in each step in which an action was due and did not happen, of all containers together.")
        .about("The kinds: chosen, waiting, unknown, evaded. Unknown and evaded alert after 15 minutes.")
        .query(e.growth("kind, reason", e.DUE), "{{kind}}: {{reason}}"),
        table("Due and not acted on, by pod", "namespace, pod, kind, reason", width=12)
        .about("For how long, in the chosen time.")
        .column("Due", e.growth("namespace, pod, kind, reason", e.DUE, "$__range"), "s"),
        Row("What was done"),
        bars("Actions", width=8)
        .about("Actions begun in each step.")
        .query(e.growth("action", "gpusteward_actions_total"), "{{action}}"),
        bars("Failures", width=8)
        .about("Actions that were not carried out or had no effect in time, by what went wrong.")
        .query(e.growth("action, reason", "gpusteward_action_failures_total"), "{{action}}: {{reason}}"),
        bars("Rehearsed", width=8)
        .about("Actions that would have been begun, had the mode been enforce.")
        .query(e.growth("action", "gpusteward_dry_run_actions_total"), "{{action}}"),
        bars("Refusals")
        .about("Times in each step at which an action came to be held, or to be held for another reason.")
        .query(e.growth("kind, reason", "gpusteward_refusals_total"), "{{kind}}: {{reason}}"),
        lines("From the first reading over the limit to the effect", "s")
        .about("90 of 100 actions took at most so long.")
        .query(e.quantile(0.9, "action", "gpusteward_action_duration_seconds"), "{{action}}"),
        table("Actions by namespace", "namespace, action", width=12)
        .about("In the chosen time.")
        .column("Begun", e.growth("namespace, action", "gpusteward_actions_total", "$__range"), "short")
        .column("Failed", e.growth("namespace, action", "gpusteward_action_failures_total", "$__range"), "short", ALARM)
        .column("Rehearsed", e.growth("namespace, action", "gpusteward_dry_run_actions_total", "$__range"), "short"),
        table("Held now, by namespace", "namespace, kind, reason", width=12)
        .about("How many containers, and for which reason.")
        .column("Held", "sum by (namespace, kind, reason) (gpusteward_held)", "short"),
        Row("What stops it"),
        timeline("Open breakers", OPEN)
        .about("Which breaker of which node was open, and when.")
        .query("max by (node, breaker) (gpusteward_breaker_open) == 1", "{{node}} {{breaker}}"),
        lines("Budgets")
        .about("Actions that are left: of the node, and of the namespace that has the fewest left.")
        .query("min by (node, scope) (gpusteward_budget_remaining)", "{{node}} {{scope}}"),
        table("Missing rights", "node, namespace", width=12)
        .about("Namespaces that consent, and in which the API server does not allow evictions.")
        .column("Missing", "max by (node, namespace) (gpusteward_namespace_rights_missing)", "short"),
        bars("Warnings that were not delivered")
        .about("Warnings in each step that the API server did not accept within a minute.")
        .about("The grace of the container runs all the same.")
        .query(e.growth("namespace", "gpusteward_warnings_undelivered_total"), "{{namespace}}", to=NAMESPACE),
        Row("Health of the daemons"),
        stat("Daemons").about("That were scraped.").query("count(gpusteward_build_info)"),
        stat("Without a proven PID domain", steps=ALARM, width=8)
        .about("Daemons that cannot tell whether the driver's process numbers are the host's:")
        .about("these attribute nothing.")
        .query("sum(gpusteward_pid_domain_proven == bool 0)"),
        stat("Refused configs", steps=ALARM)
        .about("Daemons whose config file cannot be used as it is: the one before it is in force.")
        .query("sum(gpusteward_config_last_reload_successful == bool 0)"),
        stat("Versions", width=8, named=True)
        .about("Daemons by version.")
        .query("count by (version) (gpusteward_build_info)", "{{version}}"),
        lines("Age of the snapshot", "s")
        .about("Since the round began that is shown.")
        .query(f"max by (node) ({e.AGE})", "{{node}}", to=NODE),
        timeline("Sources", UP)
        .about("Whether each source answered as a whole.")
        .query("min by (node, source) (gpusteward_source_up)", "{{node}} {{source}}"),
        bars("Incomplete rounds")
        .about("Rounds in which a source could not answer all it was asked, by reason.")
        .query(e.growth("reason", "gpusteward_rounds_incomplete_total"), "{{reason}}"),
        bars("Failed rounds")
        .about("Rounds that ended in an unexpected error: a bug of ours, please report it.")
        .query(e.growth("node", "gpusteward_round_failures_total"), "{{node}}"),
        lines("Age of the config", "s")
        .about("Since each daemon took the one in force.")
        .query("time() - max by (node) (gpusteward_config_last_reload_success_timestamp_seconds)", "{{node}}"),
        lines("Rounds per second", "ops")
        .about("0.2 with the default interval of 5 s.")
        .query("sum by (node) (rate(gpusteward_rounds_total[$__rate_interval]))", "{{node}}"),
        lines("Duration of rounds", "s")
        .about("99 of 100 took at most so long.")
        .query(e.quantile(0.99, "node", "gpusteward_round_duration_seconds"), "{{node}}"),
        lines("Entries of the driver's process lists", stacked=True)
        .about("Where each was counted, and why.")
        .query("sum by (attribution) (gpusteward_processes)", "{{attribution}}"),
    ),
    (shared.ACTIONS,),
)
