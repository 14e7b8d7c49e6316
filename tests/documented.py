"""
The commands of the README and of docs/, as they are written there.

In: the pages. Out: each command with its page, and where it is run: without a cluster (tests/commands), on a cluster
(tests/cluster), or nowhere, with the reason. Law: a command is a line of a code block (sh, console), or code in a
sentence that begins with kubectl or helm.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import plain_yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

NOT_RUN = {
    r"^(docker|make) ": "builds, tests or starts something large, or wants a registry; the target is looked for",
    r"^(cosign|git|sha256sum|COSIGN_PASSWORD=… make release)( |$)": "publishes or verifies; test_release.py does both",
    r"^(eval .*release-tools|registry serve)": "builds and starts a registry; test_release.py has one",
    r" oci://(REGISTRY|127\.0\.0\.1)": "wants a published chart; test_release.py installs one from a registry",
    r"^(nvidia-smi|ps) ?": "wants a real driver; `ps` looks for processes that hang in one",
    r"^nvidia-ctk ": "wants a node with a driver; test_mig.py runs the same with a fake one",
    r"(python -m cluster|pytest tests/cluster)": "starts a cluster",
    r"^gpusteward check ": "judges the node on which it runs; test_check.py of tests/cluster runs it with all paths",
    r"^gpusteward record ": "records the node on which it runs, for ten minutes",
    r"^gpusteward explain .*--url": "wants TLS and a password before the daemon; test_explain_running.py has both",
    r"^(gpusteward run --config|gpusteward-exporter) ": "runs until it is stopped; tests/daemon starts both",
    r"^gpusteward (report|advise) ": "wants a Prometheus with days of data; tests/report and tests/advise have one",
    r"^kubectl patch deployment train ": "wants what `gpusteward advise` printed; tests/advise reads it as YAML",
    r"port-forward svc/prometheus": "wants a Prometheus in the cluster",
    r"gpusteward completion ": "changes the reader's shell; test_completion.py asks a bash",
    r"^kubectl exec -it ": "wants a terminal; docs/top.md has the same without one",
    r"^kubectl delete -f deploy/manifests/evict/": "wants these manifests applied; test_overlays.py deletes each",
    r"^(kubectl exec … |kubectl (delete|describe) pod $|helm upgrade --wait)": "the beginning of a command",
    r"^kubectl get --raw .*custom\.metrics": "wants prometheus-adapter; tests/cluster/test_recipes.py has one",
    r" exec DAEMON -- ": "of the help of a command; the pages have the same with the daemon's name in a variable",
}
"""What a command looks like that nothing runs -> why."""
ON_A_CLUSTER = re.compile(r"\b(kubectl|helm) |^(curl|gpusteward top|gpusteward run|jq .*/var/lib/gpusteward/)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page; `block` counts the code blocks of the page, and is None for code in a sentence."""

    page: str
    block: int | None
    text: str

    @property
    def reason(self) -> str | None:
        """Why nothing runs it; None where something does."""
        return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, f"{self.text} ")), None)

    @property
    def of_a_cluster(self) -> bool:
        """Whether it is run on a cluster alone."""
        return self.reason is None and ON_A_CLUSTER.search(self.text) is not None


def values_of(page: Path) -> list[tuple[int, dict[str, Any]]]:
    """Number and content of each code block that a page writes into values.yaml, the file of its reader."""
    found = ((number, textwrap.dedent(text)) for number, (kind, text) in enumerate(blocks(page)) if kind == "yaml")
    return [(number, plain_yaml.load(text)) for number, text in found if text.startswith("# values.yaml\n")]


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay values over others, as Helm does."""
    both = {
        key: over(below[key], one) if isinstance(one, dict) and isinstance(below.get(key), dict) else one
        for key, one in above.items()
    }
    return {**below, **both}


@cache
def text_of(page: Path) -> str:
    """Read a page once: three test files ask for all commands of all pages when they are imported."""
    return page.read_text()


def name(page: Path) -> str:
    """Path of a page, from the top of the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def blocks(page: Path) -> list[tuple[str, str]]:
    """Kind and text of each code block."""
    return BLOCK.findall(text_of(page))


@cache
def written() -> tuple[Command, ...]:
    """Each command of a code block, without its comment."""
    return tuple(_written())


def _written() -> Iterator[Command]:
    for page in PAGES:
        named = name(page)
        for number, (kind, text) in enumerate(blocks(page)):
            lines = text.replace("\\\n", " ").splitlines() if kind in ("sh", "console") else []
            for line in map(str.strip, lines):
                if kind == "console" and not line.startswith(("$ ", "# ")):
                    continue
                command = re.sub(r"(^|\s+)# .*", "", line[2:] if kind == "console" else line).strip()
                if command:
                    yield Command(named, number, re.sub(r"\s+", " ", command))


@cache
def in_sentences() -> tuple[Command, ...]:
    """All code in sentences."""
    return tuple(_in_sentences())


def _in_sentences() -> Iterator[Command]:
    for page in PAGES:
        text, named = BLOCK.sub("", text_of(page)), name(page)
        yield from (Command(named, None, code) for code in re.findall(r"`([^`\n]+)`", text))


@cache
def commands() -> tuple[Command, ...]:
    """Each command that a reader could paste: of a page first those of its blocks."""
    said = (one for one in in_sentences() if re.match(r"(kubectl|helm) \S+ ", one.text))
    place = {name(page): number for number, page in enumerate(PAGES)}
    return tuple(sorted([*written(), *said], key=lambda one: (place[one.page], one.block is None)))
