"""
The commands of README and docs/ that need a cluster, pasted as they are written, page by page.

In: `documented`, a bed of its own. Out: exit codes, and what the pages say that a command prints.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import image as daemon_image
from cluster import requirements
from cluster.bed import NODE_NAME, Bed
from cluster.build import program
from cluster.fixtures import require
from cluster.reader import FIRST, WITHOUT_RIGHTS, Reader
from cluster.terminal import Terminal
from documented import commands
from profiles.test_seccomp import PROFILES
from tools.release.source import version

pytestmark = pytest.mark.cluster

ALSO_NAMED = tuple(f"{where}/gpusteward:{version()}" for where in ("gpusteward.test", "docker.io/library"))
"""Names of the image in docs/first-hour.md, with a registry, and in the plain manifests."""
PRINTED = {
    r"gpusteward check": r"^ok +driver +NVIDIA",
    r"gpusteward top( --once)?$": "team-a/llm/server",
    r"gpusteward top --json": r"^\[",
    r"port-forward \S+ 9478$": "Forwarding from",
    r"gpusteward explain team-a/": r"16 GiB(.|\n)*uses, as of(.|\n)*policy:\n.*: ok \[mode ",
    r"explain -f (deployment|pod)\.yaml": r"^  container server on .*: 16 GiB$",
    r"^helm template": r"of Deployment train(.|\n)*: 16 GiB$",
    r"^kubectl get pytorchjobs": r'"train",\n +"spec\.pytorchReplicaSpecs\.Worker\.template",\n +17179869184',
    r"^kubectl get pods .*\| gpusteward explain": "pod team-a/llm",
    r"reason=GPUMemoryLimitExceeded": "greedy-1",
    r"-n team-a get events .*Evicted$": "more than its limit",
    r"^kubectl events -n": "GPUMemoryLimitEvicted",
    r"^kubectl events --for": "GPUMemoryLimitExceeded",
    r"api/v1/decisions": r'"action": "evict"',
    r"metrics \| grep -vc": r"^10[234]\d$",
    r"gpusteward preview": "greedy",
    r"breaker_opened$": "blast_radius",
    r"gpusteward close": "the daemon took the request",
    r"grep enforcer\.held": "enforcer.held",
    r"--previous": "daemon.stopped",
    r"^jq -r": r"\tevict\tteam-a\tgreedy-",
    r"^jq -c": r'"record":"intent"',
    r"auth can-i": "^no",
    r"env \| grep": "CUDA_",
    r"-o wide": NODE_NAME,
}
"""What a command looks like that looks at something -> what it prints, sooner or later."""
STATUS = {r"auth can-i": 1}
"""What a command looks like -> its exit code, where that is not 0."""
ON_A_CLUSTER = {one.page for one in commands() if one.of_a_cluster}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader with kubectl, helm, and the command line of this checkout, before a cluster."""
    wanted = (requirements.missing(node=True), requirements.missing_for_image(), requirements.missing_for_reader())
    require([problem for problems in wanted for problem in problems])
    with Bed() as bed:
        bed.node.import_image(daemon_image.archive(), daemon_image.NAME)
        assert bed.node.containerd is not None
        for name in ALSO_NAMED:
            bed.node.containerd.ctr("images", "tag", daemon_image.NAME, name)
        shutil.copytree(PROFILES, bed.node.kubelet_folder / "seccomp")  # as step 1 of docs/hardening.md says
        tools = [Path(sys.executable).parent, program("kubectl").parent, program("helm").parent]
        variables = {"KUBECONFIG": str(bed.kubeconfig), "PATH": ":".join(map(str, [*tools, "/usr/bin", "/bin"]))}
        with Terminal(tmp_path_factory.mktemp("reader"), variables) as terminal:
            yield Reader(bed, terminal, PRINTED, STATUS)


@pytest.mark.parametrize("page", [*FIRST, *sorted(ON_A_CLUSTER - {*FIRST})])
def test_each_command_of_a_page_does_what_the_page_says(reader: Reader, page: str) -> None:
    """Its exit code is 0, or what the page leads to; a command that looks at something shows it."""
    assert reader.play(page) == ""


def test_a_namespace_with_rights_is_told_from_one_without(reader: Reader) -> None:
    """What the runbook asks has the answer `no` there (`PRINTED`), and `yes` in team-a, which has the role."""
    assert reader.play(FIRST[-1]) == ""
    asked = [one.text for one in commands() if one.page == WITHOUT_RIGHTS and "auth can-i" in one.text]
    answers = [reader.bed.kubectl(*shlex.split(text.replace("NAMESPACE", "team-a"))[1:]).strip() for text in asked]
    assert answers == ["yes", "yes"]


def test_gpusteward_is_removed_as_the_page_says(reader: Reader) -> None:
    """Helm's release and the namespace are gone."""
    assert reader.play(FIRST[0]) == ""
    assert reader.uninstall() == ""
    assert "gpusteward" not in reader.bed.kubectl("get", "namespaces,clusterroles", "-o", "name")


def test_nothing_is_awaited_in_vain() -> None:
    """Each row of the tables is of a command of a page."""
    texts = [one.text for one in commands() if one.reason is None]
    assert [row for row in (*PRINTED, *STATUS) if not any(re.search(row, text) for text in texts)] == []
    assert set(FIRST) <= ON_A_CLUSTER
