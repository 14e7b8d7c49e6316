"""
Writes docs/faults.md from the tests' marks: `PYTHONPATH=tests python -m faults`.

With the file of `pytest --faults=FILE` behind it: says which faults no test showed that passed; exit code 1 if any.
"""

import sys
from pathlib import Path

from faults.book import PAGE, marked, missing, page, read
from faults.rows import FAULTS

if __name__ == "__main__":
    if sys.argv[1:]:
        lacking = list(missing(read(Path(sys.argv[1]))))
        print("\n".join(lacking) or f"all {len(FAULTS)} faults of docs/faults.md were shown by tests that passed")
        sys.exit(bool(lacking))
    PAGE.write_text(page(marked()), encoding="utf-8")
