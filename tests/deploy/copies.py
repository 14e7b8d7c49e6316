"""
The chart's copies of the rules and boards. `make manifests` writes them.

In: alerts/ and grafana/dashboards/, where people edit them. Out: the same bytes in the chart. Law: real files, because
Flux and Rancher drop symbolic links; a test compares.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from deploy.chart import CHART, DEPLOY

ROOT = DEPLOY.parent
ALERTS, BOARDS = ROOT / "alerts", ROOT / "grafana" / "dashboards"
FOLDERS = ("alerts", "dashboards")


def files() -> dict[str, Path]:
    """Each copy: path in the chart to the file that it copies."""
    patterns = ("*.yaml", "dcgm/rules*.yaml")
    rules = (one for pattern in patterns for folder in (ALERTS, ALERTS / "exported") for one in folder.glob(pattern))
    boards = BOARDS.rglob("*.json")
    return {f"alerts/{one.relative_to(ALERTS)}": one for one in rules} | {
        f"dashboards/{one.relative_to(BOARDS)}": one for one in boards
    }


def main() -> None:
    """Write them, and remove those whose original is gone."""
    for folder in FOLDERS:
        shutil.rmtree(CHART / folder, ignore_errors=True)
    for path, original in files().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, CHART / path)


if __name__ == "__main__":
    main()
