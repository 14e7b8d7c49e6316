"""The board of the daemons: how old their data is, which sources are down, how long their rounds take."""

from grafana import expressions as e
from grafana.documents import Board
from grafana.kinds import ALARM, CAPACITY, POINTS, STALE, bars, lines, stat, table, timeline
from grafana.places import HEALTH, NODE

DOWN = {0: ("down", "red")}

BOARD = Board(
    HEALTH,
    "The daemons: the age of their data and config, their sources, rounds and versions.",
    (
        stat("Daemons").about("Daemons that Prometheus scraped.").query("count(gpusteward_build_info)"),
        stat("Oldest snapshot", "s", STALE).about("Age of the oldest snapshot of all nodes.").query(f"max({e.AGE})"),
        stat("Sources down", steps=ALARM)
        .about("Sources with an incomplete answer in the latest round.")
        .query("sum(gpusteward_source_up == bool 0)"),
        stat("Without a proven PID domain", steps=ALARM, width=8)
        .about("Daemons that cannot prove that the driver and /proc use the same process numbers. They attribute")
        .about("no memory to pods.")
        .query("sum(gpusteward_pid_domain_proven == bool 0)"),
        stat("Refused configs", steps=ALARM)
        .about("Daemons with an invalid config file. The last valid one is in force.")
        .query("sum(gpusteward_config_last_reload_successful == bool 0)"),
        stat("Versions", width=8, named=True)
        .about("Daemons by version.")
        .query("count by (version) (gpusteward_build_info)", "{{version}}"),
        lines("Age of the snapshot", "s")
        .about("Time since the start of the latest complete round: the oldest of all nodes, and each node above 30 s.")
        .at_most(POINTS)
        .query(f"max({e.AGE})", "oldest", CAPACITY)
        .query(f"max by (node) ({e.AGE} > 30)", "{{node}}", to=NODE),
        timeline("Sources down", DOWN)
        .about("Sources without a complete answer, by node. Empty while all sources of all nodes answer.")
        .query("min by (node, source) (gpusteward_source_up == 0)", "{{node}} {{source}}"),
        bars("Incomplete rounds")
        .about("Rounds with an incomplete source, by reason.")
        .query(e.growth("reason", "gpusteward_rounds_incomplete_total"), "{{reason}}"),
        bars("Failed rounds")
        .about("Rounds that ended in an unexpected error, by node. Please report it as a bug.")
        .query(e.growth("node", "gpusteward_round_failures_total"), "{{node}}"),
        lines("Age of the config", "s")
        .about("Time since the daemons loaded their configs: the longest and the shortest of all nodes.")
        .at_most(POINTS)
        .query("time() - min(gpusteward_config_last_reload_success_timestamp_seconds)", "longest ago")
        .query("time() - max(gpusteward_config_last_reload_success_timestamp_seconds)", "most recent"),
        lines("Rounds per second", "ops")
        .about("0.2 at the default interval of 5 s. More while memory changes, fewer on an overloaded node.")
        .at_most(POINTS)
        .query("min(sum by (node) (rate(gpusteward_rounds_total[$__rate_interval])))", "slowest node")
        .query("avg(sum by (node) (rate(gpusteward_rounds_total[$__rate_interval])))", "average"),
        lines("Duration of rounds", "s")
        .about("99 % of the rounds of ten minutes took at most this long.")
        .at_most(POINTS)
        .query("max(node:gpusteward_round_duration_seconds:p99)", "slowest node"),
        table("Slowest nodes", "node", width=12)
        .about("The 10 nodes whose rounds take longest now. Click one to open it.")
        .column("99 % of the rounds took at most", e.SLOWEST, "s"),
        lines("Entries of the driver's process lists", stacked=True)
        .about("Number of entries by where they were counted, and why.")
        .at_most(POINTS)
        .query("sum by (attribution) (gpusteward_gpu_processes)", "{{attribution}}"),
    ),
)
