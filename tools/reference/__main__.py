"""Writes docs/reference anew."""

from tools.reference import FOLDER, PAGES, written

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / name).write_text(written(name), encoding="utf-8")
