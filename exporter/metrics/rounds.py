"""
The daemon itself: its rounds, its sources, the attribution of the driver's process entries, its config file.

What comes in: the latest snapshot (None before the first), the tally, the last reload of the config file. What goes
out: series that stay when the snapshot is too old, so that an alert can detect it.
"""

from collections.abc import Iterator

from prometheus_client.core import Metric

from exporter.metrics.family import counter, gauge, histogram, info
from exporter.metrics.labels import labelled
from exporter.model import Attribution, Snapshot
from exporter.rounds.latest import DURATION_BUCKETS, Reload, Tally

BUILD = info(
    "build_info",
    ("version", "revision"),
    "The version of this daemon, and the git commit that it was built of (unknown if it was not built of a checkout). "
    "Always 1.",
)
TIMESTAMP = gauge(
    "snapshot_timestamp_seconds",
    (),
    "Unix time at which the round of this page's snapshot began. Scrapes are served from the latest snapshot and never "
    "touch the driver. The snapshot's series are withdrawn when it is older than three intervals, except the counters "
    "of use over time.",
)
UP = gauge("source_up", ("source",), "1 if the source as a whole answered in the latest round, else 0.")
PROVEN = gauge(
    "pid_domain_proven",
    (),
    "1 if the driver's process numbers are proven to be the node's. If 0, no memory is attributed.",
)
PROCESSES = gauge(
    "gpu_processes",
    ("attribution",),
    "Entries of the driver's process lists in the latest round, by attribution: where they were counted, and why.",
)
DURATION = histogram(
    "round_duration_seconds",
    (),
    "Duration in seconds of the rounds that produced a snapshot (the daemon's own clock).",
)
ROUNDS = counter("rounds_total", (), "Rounds since the daemon started, failed ones included.")
INCOMPLETE = counter(
    "rounds_incomplete_total",
    ("reason",),
    "Rounds in which a source gave no complete answer, by reason. A round may count for several reasons.",
)
FAILURES = counter("round_failures_total", (), "Rounds that ended in an unexpected error, a bug of gpusteward.")

CONFIG = gauge(
    "config_last_reload_successful",
    (),
    "1 if the config file as last read is in force, 0 if it was refused and the previous one is in force. No series "
    "without a config file.",
)
CONFIG_AT = gauge(
    "config_last_reload_success_timestamp_seconds",
    (),
    "Unix time at which the daemon read the config file that is in force.",
)

FAMILIES = (BUILD, TIMESTAMP, UP, PROVEN, PROCESSES, DURATION, ROUNDS, INCOMPLETE, FAILURES, CONFIG, CONFIG_AT)


def collect(
    snapshot: Snapshot | None, tally: Tally, reload: Reload | None = None, *, node: str, version: str, revision: str
) -> Iterator[Metric]:
    """Yield the families of the daemon; those that need a snapshot are missing before the first."""
    own = labelled(node)
    yield BUILD.of([(labelled(node, version=version, revision=revision), 1)])
    if snapshot is not None:
        yield TIMESTAMP.of([(own, snapshot.taken_at)])
        yield UP.of((labelled(node, source=source), up) for source, up in snapshot.sources_up.items())
        yield PROVEN.of([(own, snapshot.pid_domain_proven)])
        yield PROCESSES.of(
            (labelled(node, attribution=attribution), snapshot.processes.get(attribution, 0))
            for attribution in Attribution
        )
    yield DURATION.counted(DURATION_BUCKETS, [(own, tally.duration_counts, tally.duration_sum)])
    yield ROUNDS.of([(own, tally.rounds)])
    yield INCOMPLETE.of((labelled(node, reason=reason), count) for reason, count in sorted(tally.incomplete.items()))
    yield FAILURES.of([(own, tally.failures)])
    if reload is not None:
        yield CONFIG.of([(own, reload.successful)])
        yield CONFIG_AT.of([(own, reload.at)])
