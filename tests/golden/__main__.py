"""
Writes what the golden tests compare with, from the code as it is: `PYTHONPATH=tests python -m golden`.

Read the difference before committing it: each changed line is a promise changed.
"""

from pathlib import Path

from golden.everything import golden_page, reference

if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "metrics.txt").write_bytes(golden_page())
    (here.parents[1] / "docs" / "metrics.md").write_text(reference(), encoding="utf-8")
