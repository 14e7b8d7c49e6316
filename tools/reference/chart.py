"""
The page of the chart's values: docs/reference/chart.md.

What comes in: values.yaml with its comments. What goes out: the text of the page.

The rule: key, default and meaning are in values.yaml alone. A comment behind a key or above it is its meaning.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
VALUES, DOCS = ROOT / "deploy" / "charts" / "gpusteward" / "values.yaml", ROOT / "docs"
HEAD = """\
# Values of the chart

Look up a value of the Helm chart and its default. Below `config` stands the daemon's
[config file](config.md), with each of its keys. A key that the chart does not have is refused.
Write yours into a file, and give it to each `helm install` and `helm upgrade` (`-f values.yaml`).

| value | default | means |
|---|---|---|
"""
_LINE = re.compile(r"^(?P<space> *)(?P<dash>- )?(?:(?P<key>[\w.]+):)?(?P<rest>.*)$")


def page() -> str:
    """Write the page."""
    rows = []
    for key, default, text in values():
        if default or text:
            linked = re.sub(r"docs/([\w/-]+\.md)", _link, text)
            rows.append(f"| `{key}` | {f'`{default}`' if default else ''} | {linked} |\n")
    return "".join([HEAD, *rows])


def _link(found: re.Match[str]) -> str:
    """Write a page's name as a link; a name that stands for others (`X.md`) stays."""
    return f"[{found[1]}](../{found[1]})" if (DOCS / found[1]).exists() else found[0]


def values() -> Iterator[tuple[str, str, str]]:
    """Read values.yaml: each key with dots, its default (empty for a section), its meaning."""
    path: list[tuple[int, str]] = []
    above: list[str] = []
    pending: tuple[str, str, str] | None = None
    for line in VALUES.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            above = []
            continue
        if line.lstrip().startswith("#"):
            above.append(line.strip(" #"))
            continue
        content, _, comment = line.partition(" # ")
        found = _LINE.match(content)
        if found is None or found["dash"] or not found["key"]:
            if pending is not None and found is not None:
                pending = (pending[0], f"{pending[1]}{', ' if pending[1] else ''}{found['rest'].strip()}", pending[2])
            continue
        if pending is not None:
            yield pending
        depth = len(found["space"])
        path = [*(one for one in path if one[0] < depth), (depth, found["key"])]
        meaning = " ".join([*above, comment.strip()]).strip()
        pending = (".".join(name for _, name in path), found["rest"].strip(), meaning.replace("|", "\\|"))
        above = []
    if pending is not None:
        yield pending
