"""
A page of metrics, read back as a scraper reads it.

What comes in: the text of a page. What goes out: its families, or the samples of one name by chosen labels.
"""

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families


def families(page: str | bytes) -> list[Metric]:
    """Read a page of either format; only OpenMetrics ends in `# EOF`."""
    text = page.decode() if isinstance(page, bytes) else page
    return list(parse_openmetrics(text) if text.endswith("# EOF\n") else parse_text(text))


def series(page: str | bytes, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """
    Read the samples of one name (without prefix), keyed by the values of `labels`, which must tell them apart.

    Other lines are not parsed: tests that wait for a sample read a page many times, and spent half a core on the rest.
    """
    text = page.decode() if isinstance(page, bytes) else page
    begins = (f"gpusteward_{name}{{", f"gpusteward_{name} ")
    found: dict[tuple[str, ...], float] = {}
    for metric in parse_text("".join(line + "\n" for line in text.split("\n") if line.startswith(begins))):
        for sample in metric.samples:
            key = tuple(sample.labels[label] for label in labels)
            assert key not in found, f"{name}: two samples for {key}"
            found[key] = sample.value
    return found
