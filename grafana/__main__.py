"""Writes the boards, for both names of labels: `python -m grafana`. Read the difference before committing it."""

from pathlib import Path

from grafana.catalogue import BOARDS
from grafana.documents import document, text, written
from grafana.exported import exported

if __name__ == "__main__":
    folder = Path(__file__).parent / "dashboards"
    (folder / "exported").mkdir(exist_ok=True)
    for board in BOARDS:
        name = f"{board.place.uid}.json"
        (folder / name).write_text(written(board), encoding="utf-8")
        (folder / "exported" / name).write_text(text(exported(document(board))), encoding="utf-8")
