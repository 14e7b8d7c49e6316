"""docs/sharing-systems*.md: each example of a declaration is read as the page says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enforcer import cli
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, load
from exporter.limits.loading import builtin

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("sharing-systems*.md"))
UUID = "GPU-00000000-1111-2222-3333-444444444444"
HAMI = [
    {"id": UUID, "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA", "mode": "hami-core", "health": True}
]
NODES: dict[str, dict[str, Any]] = {
    "Time-slicing": {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}},
    "MPS": {"labels": {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"}},
    "MIG": {"labels": {"nvidia.com/mig-1g.10gb.memory": "9728"}},
    "MIG with replicas": {"labels": {"nvidia.com/mig-1g.10gb.memory": "9728", "nvidia.com/mig-1g.10gb.replicas": "2"}},
    "HAMi, Volcano vGPU, vgpu-manager": {"annotations": {"hami.io/node-nvidia-register": json.dumps(HAMI)}},
    "gpushare": {"capacity": {"aliyun.com/gpu-mem": "79"}},
    "AML (Alauda)": {"capacity": {"nvidia.com/mps-core": "100", "nvidia.com/mps-memory": "79"}},
}
"""What a section's node has beside one GPU of 80 GiB."""


def sections() -> Iterator[tuple[str, str]]:
    """Each section of the pages: heading, text."""
    for page in PAGES:
        for part in page.read_text(encoding="utf-8").split("\n## ")[1:]:
            heading, _, text = part.partition("\n")
            yield heading, text


def examples() -> Iterator[tuple[str, str, str]]:
    """Each manifest with the answer below it: heading, manifest, answer."""
    for heading, text in sections():
        for manifest, answer in re.findall(r"```yaml\n(apiVersion.*?)```\n(?:```text\n(.*?)```)?", text, re.DOTALL):
            yield heading, manifest, answer


def configs() -> Iterator[tuple[str, str]]:
    """Each part of the config: heading, YAML."""
    for heading, text in sections():
        yield from ((heading, one) for one in re.findall(r"```yaml\n(config:.*?)```", text, re.DOTALL))


EXAMPLES, CONFIGS = list(examples()), list(configs())


def node(heading: str) -> dict[str, Any]:
    """Make the Node of a section."""
    more = NODES.get(heading, {})
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "81920", **more.get("labels", {})}
    about = {"name": "gpu-1", "labels": labels, "annotations": more.get("annotations", {})}
    capacity = more.get("capacity", {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": about, "status": {"capacity": capacity}}


@pytest.mark.parametrize(("heading", "manifest", "answer"), EXAMPLES, ids=[one[0] for one in EXAMPLES])
def test_a_declaration_is_read_as_the_page_says(
    heading: str, manifest: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`gpusteward explain -f` accepts the manifest, and its answer has the lines of the page."""
    (tmp_path / "pod.yaml").write_text(manifest)
    (tmp_path / "node.yaml").write_text(json.dumps(node(heading)))
    assert cli.main(["explain", "-f", str(tmp_path / "pod.yaml"), "--node", str(tmp_path / "node.yaml")]) == 0
    assert answer
    assert answer in capsys.readouterr().out


@pytest.mark.parametrize(("heading", "text"), CONFIGS, ids=[one[0] for one in CONFIGS])
def test_a_config_is_one_that_the_daemon_takes(heading: str, text: str, tmp_path: Path) -> None:
    """The chart passes its value `config` on to the daemon; the file is loaded, and its rules are made."""
    body = re.sub(r"(?m)^  ", "", text.removeprefix("config:\n"))
    one_line = text.removeprefix("config: ").strip()
    (tmp_path / "config.yaml").write_text(body if text.startswith("config:\n") else one_line)
    assert rules_of(load(Arguments(tmp_path / "config.yaml")))


def test_each_system_of_the_index_has_a_section_with_an_example_or_a_link() -> None:
    """No section is empty, and each one but the last has an example."""
    shown = {heading for heading, *_ in examples()}
    named = [heading for heading, _ in sections() if heading not in {"The same in each system", "Your own declaration"}]
    assert len(named) >= 15
    assert [heading for heading in named if heading not in shown] == []


def test_each_resource_of_the_indexes_is_one_that_is_read() -> None:
    """The keys by which a reader finds the section are keys of the catalogue, or begin or end one."""
    known = [row.key for system in builtin() for row in system.rows]
    for page in PAGES:
        table = page.read_text(encoding="utf-8").split("| your pods have |")[1].split("\n\n")[0]
        for key in re.findall(r"`([\w./*-]+/[\w.*-]+)`", table):
            stem = key.replace("NAME", "*").split("*")[0]
            assert any(one.startswith(stem) or stem in one for one in known), key
