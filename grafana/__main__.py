"""Writes the boards: `python -m grafana`. Read the difference before committing it."""

from pathlib import Path

from grafana.catalogue import BOARDS
from grafana.documents import written

if __name__ == "__main__":
    for board in BOARDS:
        (Path(__file__).parent / "dashboards" / f"{board.place.uid}.json").write_text(written(board), encoding="utf-8")
