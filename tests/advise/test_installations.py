"""`gpusteward advise` against a real Prometheus of other installations: clusters, limits of pods, overridden labels."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from advise.histories import UNTIL, Box, samples
from patience import PATIENCE
from prometheus.scraping import serving
from report.week import DAY, GIB, START, Labels, blocks

COMMAND = Path(sys.executable).parent / "gpusteward"
GPUSHARE = {"system": "gpushare", "source": "resource", "scope": "pod", "enforced_by": "none"}
HAMI = {"system": "hami-nvidia", "source": "resource", "scope": "container", "enforced_by": "hook"}
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


def halves(at: int) -> float:
    """10 GiB in the first half of each day, 60 GiB in the second."""
    return (10 if (at - START) % DAY < DAY // 2 else 60) * GIB


BOXES = (
    Box("train", held=lambda _: 30 * GIB, cluster="eu", limit=40 * GIB, declaration=HAMI),
    Box("train", held=lambda _: 50 * GIB, cluster="us", limit=60 * GIB, declaration=HAMI),
    Box("shared", "main", held=lambda _: 12 * GIB, cluster="eu", pod_limit=16 * GIB, declaration=GPUSHARE, over=60.0),
    Box("shared", "side", held=lambda _: 5 * GIB, cluster="eu", pod_limit=16 * GIB, declaration=GPUSHARE, over=60.0),
    Box("halves", held=halves, cluster="eu"),
    Box("two", "a", cluster="eu", limit=40 * GIB, declaration=HAMI),
    Box("two", "b", cluster="eu", limit=40 * GIB, declaration=HAMI),
    Box("gpu-a01", kind="Node", pod="server-gpu-a01", cluster="eu"),
    Box("once", kind="Job", cluster="eu"),
    Box("remembered", kernel=30 * GIB, cluster="eu"),
    Box("sizes", pod="sizes-small", held=lambda _: 20 * GIB, cluster="eu", place="small", device=24 * GIB),
    Box("sizes", pod="sizes-large", held=lambda _: 30 * GIB, cluster="eu", place="large"),
)
"""`shared` is one pod whose containers have 16 GiB together, as Aliyun's gpushare declares them."""


@contextmanager
def asking(folder: Path, data: Path, *flags: str) -> Iterator[Ask]:
    """Serve the data, and give the command that asks."""
    with serving(data, folder, *flags) as one:

        def ask(*words: str) -> subprocess.CompletedProcess[str]:
            command = [str(COMMAND), "advise", "--prometheus", one.url, "--until", UNTIL, "--since", "4d", *words]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

        yield ask


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The days of `BOXES`, as blocks."""
    return blocks(tmp_path_factory.mktemp("clusters"), samples(BOXES))


@pytest.fixture(scope="module")
def advise(data: Path) -> Iterator[Ask]:
    """The command, beside a Prometheus of them."""
    with asking(data.parent, data) as ask:
        yield ask


def found(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The answer."""
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def patches(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """The patches of a text."""
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout.partition("\n---")[2]) if one]


@pytest.mark.prometheus
def test_clusters_stay_apart(advise: Ask) -> None:
    """The same name in another cluster is another workload; a column says which, where there are several."""
    rows = [(one["cluster"], one["advised_bytes"]) for one in found(advise("team-a/train", "--json"))]
    assert rows == [("eu", 33 * GIB), ("us", 55 * GIB)]
    text = advise("team-a/train").stdout
    assert text.startswith("CLUSTER  CONTAINER") and "eu       team-a/Deployment/train/main" in text
    assert "# us: team-a/Deployment/train/main: nvidia.com/gpumem" in text
    assert "CLUSTER" not in advise("team-a/two").stdout


@pytest.mark.prometheus
def test_a_limit_of_the_pod_is_advised_for_its_containers_together(advise: Ask) -> None:
    """Their peaks are added; the amount is written once, in the form of the present declaration."""
    (one,) = found(advise("team-a/shared", "--json"))
    assert (one["container"], one["system"]) == ("", "gpushare")
    assert (one["peak_bytes"], one["limit_bytes"]) == (17 * GIB, 16 * GIB)
    assert any(remark.startswith("it was over its limit for 96 min") for remark in one["remarks"]), one["remarks"]
    done = advise("team-a/shared")
    (patch,) = patches(done)
    containers = patch["spec"]["template"]["spec"]["containers"]
    amount = {"aliyun.com/gpu-mem": "19"}
    assert containers == [{"name": "main", "resources": {"limits": amount, "requests": amount}}]
    unit = "# one is 1Gi here, and another installation may count in another unit"
    assert f"{unit}\n# it is for all containers" in done.stdout


@pytest.mark.prometheus
def test_the_answer_does_not_depend_on_the_bounds_of_the_server(advise: Ask, data: Path, tmp_path: Path) -> None:
    """A day that is asked in halves has the peak of the larger, and is not flat because each half is."""
    whole = found(advise("--json"))
    copied = Path(shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("lock", "wal")))
    with asking(tmp_path, copied, "--query.max-samples=250") as ask:
        parts = found(ask("--json"))
    for one, other in zip(whole, parts, strict=True):
        assert [one[name] for name in ("workload", "advice", "advised_bytes", "peak_bytes", "days")] == [
            other[name] for name in ("workload", "advice", "advised_bytes", "peak_bytes", "days")
        ]
    (split,) = [one for one in parts if one["workload"] == "halves"]
    assert (split["advice"], split["advised_bytes"]) == ("limit", 66 * GIB)


@pytest.mark.prometheus
def test_patches_can_be_applied_as_they_are_or_say_where_they_belong(advise: Ask) -> None:
    """One patch for two containers; a Job's template cannot change; a static pod has a file."""
    (patch,) = patches(advise("team-a/two"))
    assert [one["name"] for one in patch["spec"]["template"]["spec"]["containers"]] == ["a", "b"]
    job = advise("team-a/once")
    assert "# the template of a Job cannot change" in job.stdout and "kind" not in patches(job)[0]
    static = advise("team-a/StaticPod/server-gpu-a01").stdout
    assert "# write this into the manifest of the static pod server-gpu-a01 on its node" in static


@pytest.mark.prometheus
def test_a_name_of_the_table_is_taken_and_an_unknown_one_refused(advise: Ask) -> None:
    """NAMESPACE/KIND/WORKLOAD and NAMESPACE/KIND/WORKLOAD/CONTAINER are those of the table."""
    for name in ("team-a/Deployment/two/a", "team-a/two/a"):
        assert [one["container"] for one in found(advise(name, "--json"))] == ["a"]
    assert len(found(advise("team-a/Deployment/two", "--json"))) == 2
    for name in ("team-a/nosuch", "team-a/Job/two", "team-a/two/c"):
        done = advise(name)
        assert done.returncode == 1 and done.stdout == ""
        assert f"has no containers on GPUs of {name} in this time" in done.stderr


@pytest.mark.prometheus
def test_a_peak_of_the_kernel_counts_and_is_not_called_one_of_these_days(advise: Ask) -> None:
    """It may be from before the time that was asked about."""
    (one,) = found(advise("team-a/remembered", "--json"))
    assert (one["peak_bytes"], one["advised_bytes"]) == (30 * GIB, 33 * GIB)
    assert one["why"].startswith("its peak since its start, perhaps before these 4 days (readings: 10.00Gi at most)")


@pytest.mark.prometheus
def test_pods_on_gpus_of_several_sizes_get_a_limit(advise: Ask) -> None:
    """20 of 24 GiB and 30 of 80 GiB are no whole device."""
    (one,) = found(advise("team-a/sizes", "--json"))
    assert (one["advice"], one["advised_bytes"]) == ("limit", 33 * GIB)
    assert "33.00Gi does not fit on devices of 24.00Gi" in one["remarks"]


@pytest.mark.prometheus
def test_a_sandboxed_pod_is_one_row_without_a_container(tmp_path: Path) -> None:
    """Its memory has no container. Memory of the first moments of another pod has none either, and is no row."""
    boxes = (
        Box("sandboxed", container="", held=lambda _: 30 * GIB, kind="StatefulSet"),
        Box("shared", container="", held=lambda _: 12 * GIB, pod_limit=16 * GIB, declaration=GPUSHARE),
        Box("claimed", container="", held=lambda _: 9 * GIB, claim="own"),
        Box("train", held=lambda _: 20 * GIB),
    )
    first = samples([Box("train", container="", held=lambda _: 5 * GIB)])
    lagging = (one for one in first if one[0] == "gpusteward_container_memory_used_bytes" and one[2] < START + DAY // 2)
    with asking(tmp_path, blocks(tmp_path, (*samples(boxes), *lagging))) as ask:
        answers = {one["workload"]: one for one in found(ask("team-a", "--json"))}
        text = ask("team-a/StatefulSet/sandboxed").stdout
    rows = {name: (one["container"], one["advised_bytes"]) for name, one in answers.items()}
    assert rows == {
        "claimed": ("", 10 * GIB),
        "sandboxed": ("", 33 * GIB),
        "shared": ("", 13.25 * GIB),
        "train": ("main", 22 * GIB),
    }
    whole = "declare 33Gi for the whole pod: metrics name no container of it, as of a sandboxed pod (gVisor, Kata)"
    assert answers["sandboxed"]["remarks"] == [whole]
    assert answers["claimed"]["remarks"] == ["ask for 10Gi of memory in the capacity of the ResourceClaim"]
    assert {name for name, one in answers.items() if one["patch"] is not None} == {"train"}
    assert f"team-a/StatefulSet/sandboxed: its peak in 4 days, and 10% more\n  {whole}\n" in text


def of_daemon(*names: str) -> Callable[[Labels], Labels]:
    """What a scrape without honor_labels makes of the labels of workloads: those of the daemon's pod win."""
    daemon = {"namespace": "gpusteward", "pod": "gpusteward-x7k2p", "container": "exporter"}

    def renamed(labels: Labels) -> Labels:
        kept = tuple((f"exported_{name}" if name in names else name, text) for name, text in labels)
        return (*kept, *((name, daemon[name]) for name in names))

    return renamed


@pytest.mark.prometheus
@pytest.mark.parametrize("names", [("namespace",), ("namespace", "pod", "container")], ids=len)
def test_labels_that_the_scrape_overrides_are_found(names: Iterable[str], tmp_path: Path) -> None:
    """Also where only the namespace is, as OpenShift does; the container of a pod's limit stays empty."""
    boxes = (BOXES[0], *BOXES[2:4])
    data = blocks(tmp_path, samples(boxes, of_daemon(*names)))
    with asking(tmp_path, data) as ask:
        rows = [(one["namespace"], one["workload"], one["limit_bytes"]) for one in found(ask("team-a", "--json"))]
        assert rows == [("team-a", "shared", 16 * GIB), ("team-a", "train", 40 * GIB)]
        assert ask("gpusteward").returncode == 1


@pytest.mark.prometheus
@pytest.mark.parametrize("names", [("namespace",), ("namespace", "pod", "container")], ids=len)
def test_a_scrape_that_begins_to_override_labels_loses_no_day(names: Iterable[str], tmp_path: Path) -> None:
    """The answers of each day are read with the labels of that day; the daemon's own pod is no workload."""
    box, middle = BOXES[0], START + 2 * DAY + DAY // 2
    before = (one for one in samples([box]) if one[2] < middle)
    after = (one for one in samples([box], of_daemon(*names)) if one[2] >= middle)
    data = blocks(tmp_path, (*before, *after))
    with asking(tmp_path, data) as ask:
        for words in (("--json",), ("team-a", "--json")):
            (one,) = found(ask(*words))
            assert (one["namespace"], one["workload"], one["days"]) == ("team-a", "train", 4)
            assert (one["limit_bytes"], one["system"]) == (40 * GIB, "hami-nvidia")
