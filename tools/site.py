"""
A hook of MkDocs (mkdocs.yml), which adds what the site needs beside docs/.

What comes in: the pages, the links in them. What goes out: the files of the repository that pages link to, below
`repository/` of the site, with each link rewritten. Lists are written as Python-Markdown reads them. The runbooks are
added to the navigation.

The rule: pages keep the links that work in the repository. A link to a folder becomes plain text. A link to nothing is
left as it is, so that the strict build ends with its name.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OUTSIDE = "repository"
_INLINE = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_ITEM = re.compile(r"(?:-|\d+\.) +(?=\S)")
_REFERENCE = re.compile(r"^\[([^\]]+)\]: ([^\s#]+)(#\S*)?$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """List the runbooks in the navigation, where mkdocs.yml names their folder."""
    runbooks = [f"runbooks/{page.name}" for page in sorted((DOCS / "runbooks").glob("*.md"))]
    for section in config.nav:
        for title, entries in section.items():
            if isinstance(entries, list):
                section[title] = [
                    {"Runbooks": runbooks} if one == {"Runbooks": "runbooks/"} else one for one in entries
                ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files outside of docs/ that pages link to, and those that these link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415  (the tests of this module do without MkDocs)

    waiting = [DOCS / one.src_uri for one in files.documentation_pages()]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in outside(page, page.read_text(encoding="utf-8")) - seen:
            seen.add(target)
            files.append(File.generated(config, uri(target), abs_src_path=str(target)))
            if target.suffix == ".md":
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Rewrite the links and the lists of a page."""
    return indented(rewritten(markdown, Path(page.file.abs_src_path), page.file.src_uri))


def uri(target: Path) -> str:
    """Name a file of the repository as the site does."""
    place = target.relative_to(ROOT).as_posix()
    return place.removeprefix("docs/") if target.is_relative_to(DOCS) else f"{OUTSIDE}/{place}"


def outside(page: Path, text: str) -> set[Path]:
    """Find the files outside of docs/ that a page links to."""
    found: set[Path] = set()

    def look(target: Path) -> str | None:
        if target.is_file() and target.is_relative_to(ROOT) and not target.is_relative_to(DOCS):
            found.add(target)
        return None

    _each(text, page, look)
    return found


def rewritten(text: str, page: Path, place: str) -> str:
    """Rewrite the links of a page that is at `place` in the site."""

    def link(target: Path) -> str | None:
        if target.is_dir():
            return ""
        if not target.is_file() or not target.is_relative_to(ROOT):
            return None
        return os.path.relpath(uri(target), Path(place).parent)

    return _each(text, page, link)


def indented(text: str) -> str:
    """Write lists as Python-Markdown reads them: after an empty line, and the content of an item four columns in."""
    lines: list[str] = []
    width, fenced = 0, False
    for line in text.splitlines():
        if line.startswith("```"):
            width, fenced = 0, not fenced
        if fenced or line.startswith("```"):
            lines.append(line)
        elif item := _ITEM.match(line):
            if not width and lines and lines[-1]:
                lines.append("")
            width = len(item[0])
            lines.append(line)
        elif width and line.startswith(" " * width):
            lines.append("    " + line[width:])
        else:
            width = width if not line else 0
            lines.append(line)
    return "\n".join(lines) + "\n"


def _each(text: str, page: Path, link: Callable[[Path], str | None]) -> str:
    """Replace each link by the result of `link`: None leaves it as it is, an empty text removes it."""

    def put(found: re.Match[str]) -> str:
        name, target, heading = found[1], found[2], found[3] or ""
        new = None if "://" in target else link((page.parent / target).resolve())
        if new is None:
            return found[0]
        if new == "":
            return name if found[0].endswith(")") else ""
        return f"[{name}]({new}{heading})" if found[0].endswith(")") else f"[{name}]: {new}{heading}"

    parts: Iterable[str] = re.split(r"(^ *```.*?^ *```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if number % 2 else _REFERENCE.sub(put, _INLINE.sub(put, part)) for number, part in enumerate(parts)
    )
