"""The board of the daemons: how old their data is, which sources are down, how long their rounds take."""

from grafana import expressions as e
from grafana.documents import Board
from grafana.kinds import ALARM, STALE, bars, lines, stat, timeline
from grafana.places import HEALTH, NODE

UP = {0: ("down", "red"), 1: ("up", "green")}

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
        .about("Time since the start of the latest complete round.")
        .query(f"max by (node) ({e.AGE})", "{{node}}", to=NODE),
        timeline("Sources", UP)
        .about("1 where a source answered completely, else 0.")
        .query("min by (node, source) (gpusteward_source_up)", "{{node}} {{source}}"),
        bars("Incomplete rounds")
        .about("Rounds with an incomplete source, by reason.")
        .query(e.growth("reason", "gpusteward_rounds_incomplete_total"), "{{reason}}"),
        bars("Failed rounds")
        .about("Rounds that ended in an unexpected error. Please report it as a bug.")
        .query(e.growth("node", "gpusteward_round_failures_total"), "{{node}}"),
        lines("Age of the config", "s")
        .about("Time since each daemon loaded its config.")
        .query("time() - max by (node) (gpusteward_config_last_reload_success_timestamp_seconds)", "{{node}}"),
        lines("Rounds per second", "ops")
        .about("0.2 at the default interval of 5 s.")
        .query("sum by (node) (rate(gpusteward_rounds_total[$__rate_interval]))", "{{node}}"),
        lines("Duration of rounds", "s")
        .about("99 % of the rounds took at most this long.")
        .query(e.quantile(0.99, "node", "gpusteward_round_duration_seconds"), "{{node}}"),
        lines("Entries of the driver's process lists", stacked=True)
        .about("Number of entries by where they were counted, and why.")
        .query("sum by (attribution) (gpusteward_gpu_processes)", "{{attribution}}"),
    ),
)
