"""Names from the kubelet's log links."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kube.remembered import LogLink, inventory, parse, read
from exporter.model import Container, ContainerId, PodUid

UID = PodUid("2c48913c-b29f-11e7-9350-020968147796")
HASH = PodUid("7260904bbd08e72e4dff95d9fccd2ee8")
A, B = ContainerId("a" * 64), ContainerId("b" * 64)


def name(pod: str = "web-0", namespace: str = "team-a", container: str = "main", id_: str = A) -> str:
    """The name of a link, cut as the kubelet cuts it (kuberuntime/legacy.go, logSymlink)."""
    return f"{pod}_{namespace}_{container}-{id_}"[: 255 - len(".log")] + ".log"


def target(
    pod: str = "web-0", namespace: str = "team-a", uid: str = UID, container: str = "main", number: int = 0
) -> str:
    return f"/var/log/pods/{namespace}_{pod}_{uid}/{container}/{number}.log"


def test_a_link_names_a_container() -> None:
    """Link and target together give pod, namespace, UID, container, its id and its generation."""
    assert parse(name(), target(number=3), 7.0) == LogLink("team-a", "web-0", UID, "main", 3, A, 7.0)


def test_a_static_pod_is_named_by_its_hash() -> None:
    """The folder of a static pod carries the hash that its cgroup has."""
    found = parse(name("etcd-n1", "kube-system"), target("etcd-n1", "kube-system", HASH))
    assert found is not None
    assert found.pod_uid == HASH


def test_another_log_folder_is_read_too() -> None:
    """The kubelet's podLogsDir may be anywhere; the last three parts count."""
    assert parse(name(), target().replace("/var/log/pods", "/data/kubelet logs/pods")) is not None


def test_names_with_every_legal_character_are_told_apart() -> None:
    """Dots and dashes in pod names, dashes in the others: the underscore parts them, and nothing legal has one."""
    pod, namespace, container = "a-1.b-2.c", "n-a-1", "c-1"
    found = parse(name(pod, namespace, container), target(pod, namespace, container=container))
    assert found == LogLink(namespace, pod, UID, container, 0, A)


def test_a_name_that_the_kubelet_had_to_cut_loses_the_id_only() -> None:
    """Above 255 characters the id is cut off: pod and container are known by the target, the id is not guessed."""
    pod, namespace, container = "p" * 63 + "." + "q" * 63, "n" * 63, "c" * 63
    found = parse(name(pod, namespace, container), target(pod, namespace, container=container))
    assert found == LogLink(namespace, pod, UID, container, 0, None)


@pytest.mark.parametrize(
    ("link", "to"),
    [
        (name(), "/var/log/pods"),
        (name(), ""),
        (name(), target(uid="not-a-uid")),
        (name(), target(uid=UID.upper())),
        (name(), target(pod="../../etc")),
        (name(), target(container="..")),
        (name(), target(container="Main")),
        (name(), target(pod="under_score")),
        (name(), target(namespace="a.b")),
        (name(), target() + "\n"),
        (name(), target().replace("0.log", "x.log")),
        (name(), target().replace("0.log", "0.log.gz")),
        (name(), target().replace("0.log", "99999999999.log")),
    ],
)
def test_what_is_none_of_the_kubelets_is_passed_over(link: str, to: str) -> None:
    """A target of any other shape names no container."""
    assert parse(link, to) is None


def test_a_link_that_disagrees_with_its_target_gives_no_id() -> None:
    """The target is believed; an id under another name is not."""
    found = parse(name(pod="other"), target())
    assert found is not None
    assert (found.pod, found.container_id) == ("web-0", None)


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_is_too_strange(link: str, to: str) -> None:
    """Hostile names are parsed or passed over, never an exception; and what is found is well formed."""
    found = parse(link, to)
    assert found is None or "_" not in found.pod + found.namespace + found.container


def test_the_folder_is_read(tmp_path: Path) -> None:
    """Links are read without their targets being there; files, folders and strangers are passed over."""
    (tmp_path / name()).symlink_to(target())
    (tmp_path / name(id_=B)).symlink_to(target(number=1))
    (tmp_path / "stranger.log").symlink_to("/etc/passwd")
    (tmp_path / "file.log").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "umlaut\udcff.log").symlink_to(target())
    found = read(tmp_path)
    assert {(one.container_id, one.restart) for one in found} == {(A, 0), (B, 1), (None, 0)}
    assert all(one.made_at > 1e9 for one in found)


def test_a_folder_that_is_not_there_names_nobody(tmp_path: Path) -> None:
    """The mount is optional."""
    assert read(tmp_path / "missing") == ()
    assert inventory(()).known is False


def test_generations_are_in_order() -> None:
    """The present generation of a container is the last one, by number and not by letters: 10 follows 9."""
    links = [
        LogLink("team-a", "web-0", UID, "main", restart, ContainerId(f"{restart:064x}"), 100.0 + restart)
        for restart in (10, 9, 2)
    ]
    found = inventory(links)
    assert [container.id for container in found.containers] == [ContainerId(f"{n:064x}") for n in (2, 9, 10)]
    assert (found.known, found.live) == (True, False)
    pod = found.pods[UID]
    assert (pod.namespace, pod.name, pod.created_at) == ("team-a", "web-0", 102.0)


def test_two_pods_of_one_name_stay_two() -> None:
    """The log folder of a deleted pod may still be there: UIDs tell them apart."""
    other = PodUid("3c48913c-b29f-11e7-9350-020968147796")
    found = inventory([LogLink("ns", "p", UID, "main", 0, A), LogLink("ns", "p", other, "main", 0, B)])
    assert found.containers == (Container(UID, "main", A), Container(other, "main", B))
