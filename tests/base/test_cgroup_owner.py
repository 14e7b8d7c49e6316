"""Promises of exporter/base/cgroup_owner.py: the owner of a process, by the text of /proc/<pid>/cgroup."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.base.cgroup_owner import parse_owner
from exporter.model import ContainerId, Owner, PodUid

Pair = tuple[PodUid | None, ContainerId | None]

FIXTURE = Path(__file__).parent / "fixtures" / "cgroup_lines.txt"
CASE = re.compile(r"^== (?P<case>.+)\n(?P<text>(?:.+\n)+?)-> (?P<pod>\S+) (?P<container>\S+)$", re.MULTILINE)
CASES = [
    (
        str(match["case"]),
        str(match["text"]),
        *(None if match[word] == "-" else match[word] for word in ("pod", "container")),
    )
    for match in CASE.finditer(FIXTURE.read_text())
]
TEXTS = [str(text) for _, text, *_ in CASES]

POD, OTHER = PodUid("2c48913c-b29f-11e7-9350-020968147796"), PodUid("a2830d0d-b0f0-4ff0-81b5-0ee4e299cf80")
MAIN, FOREIGN = ContainerId("9" * 64), ContainerId("0123456789abcdef" * 4)
PATH = f"/kubepods/burstable/pod{POD}/{MAIN}"
ELSEWHERE = f"/kubepods/burstable/pod{OTHER}/{FOREIGN}"
OURS = Owner(((POD, MAIN),))


def believed(owner: Owner) -> Pair:
    """What is believed of `owner` when nothing is known of the node's pods."""
    complete = [pair for pair in owner.pairs if all(pair)]
    with_pod = [pair for pair in owner.pairs if pair[0]]
    return (*complete, *with_pod, *owner.pairs, (None, None))[0]


def complete(owner: Owner) -> Pair | None:
    """The first pair that has both pod and container."""
    return next((pair for pair in owner.pairs if all(pair)), None)


def deeper(text: str, below: str) -> str:
    """
    The same file for a process that sits `below` its cgroup, in each hierarchy in which it has one.

    Where a runtime left it in its own cgroup (hybrid, `0::/system.slice/containerd.service`) it can make nothing.
    """
    found = [line.removesuffix(" (deleted)") for line in text.splitlines()]
    return "".join(f"{line}{below}\n" if complete(parse_owner(line)) else f"{line}\n" for line in found)


@pytest.mark.parametrize(("case", "text", "pod", "container"), CASES, ids=[case for case, *_ in CASES])
def test_lines_of_real_nodes(case: str, text: str, pod: PodUid | None, container: ContainerId | None) -> None:
    """Each runtime, driver, cgroup version and place of the reader: the pod and the container, or neither."""
    owner = parse_owner(text)
    assert believed(owner) == (pod, container), case
    assert not owner.contradictory


def test_no_line_is_forgotten() -> None:
    """All cases of the fixture file are read, the one with several lines too."""
    assert len(CASES) == FIXTURE.read_text().count("\n== ") == 54
    assert max(text.count("\n") for text in TEXTS) == 3


def test_a_nested_node_has_a_pair_for_each_node() -> None:
    """Kind in a pod: outer pair first, so that the inventory of either node finds its own."""
    assert parse_owner(f"0::{PATH}{ELSEWHERE}\n").pairs == ((POD, MAIN), (OTHER, FOREIGN))


def test_a_nodes_own_container_stands_before_its_pods() -> None:
    """Kind on docker: the node's container has no pod here, and says so by its place."""
    assert parse_owner(f"0::/docker/{FOREIGN}/kubelet{PATH}\n").pairs == ((None, FOREIGN), (POD, MAIN))


@pytest.mark.fault(35)
def test_a_sandboxed_pod_has_no_container() -> None:
    """gVisor runs in the pod's own cgroup; a further pod below does not lend it a container."""
    assert parse_owner(f"0::/kubepods/pod{POD}\n").pairs == ((POD, None),)
    assert parse_owner(f"0::/kubepods/pod{POD}{ELSEWHERE}\n").pairs == ((POD, None), (OTHER, FOREIGN))


def test_containers_below_a_container_are_its_own() -> None:
    """Docker in a pod: whatever it starts belongs to the pod's container."""
    assert parse_owner(f"0::{PATH}/docker/{FOREIGN}/system.slice/docker-{FOREIGN}.scope\n") == OURS


@pytest.mark.parametrize(
    "below", ["/x", "/init.scope", ELSEWHERE, f"/docker/{FOREIGN}", "/a:b:c", "/..", "//", " (deleted)"]
)
def test_nothing_below_changes_whose_it_is(below: str) -> None:
    """On each line of the fixture: who makes folders below its own cgroup stays who it was."""
    owners = {text: complete(parse_owner(text)) for text in TEXTS}
    known = {text: owner for text, owner in owners.items() if owner is not None}
    assert {text: complete(parse_owner(deeper(text, below))) for text in known} == known


SEGMENT = st.one_of(
    st.text(st.characters(exclude_characters="/\n", exclude_categories=()), min_size=1, max_size=20),
    st.sampled_from(
        [
            f"pod{OTHER}",
            f"kubepods-pod{OTHER}.slice".replace("-", "_"),
            f"kubepods-burstable-pod{OTHER.replace('-', '_')}.slice",
            FOREIGN,
            f"cri-containerd-{FOREIGN}.scope",
            f"kubepods-pod{OTHER.replace('-', '_')}.slice:cri-containerd:{FOREIGN}",
            "kubepods",
            "..",
            "(deleted)",
            "\ud800",
            "\x00",
        ]
    ),
)


@given(st.sampled_from([text for text in TEXTS if complete(parse_owner(text))]), st.lists(SEGMENT, max_size=8))
def test_no_folder_that_a_workload_can_make_changes_whose_it_is(text: str, segments: list[str]) -> None:
    """Any names at any depth: line feeds and slashes apart, which the kernel refuses in a name, all is tried."""
    before = parse_owner(text)
    after = parse_owner(deeper(text, "".join(f"/{segment}" for segment in segments)))
    assert complete(after) == complete(before)
    assert after.pairs[: len(before.pairs)] == before.pairs


@given(st.text(st.characters(exclude_categories=())))
@example("0::")
@example("::")
@example("\n\n::/\n")
@example("no colons at all")
@example("0::/pod\x00" + POD)
@example("12:memory" + PATH)
def test_every_text_has_an_owner(text: str) -> None:
    """Whatever stands in the file: an owner, never an exception, and only pods and ids that stand in it."""
    owner = parse_owner(text)
    for uid, container in owner.pairs:
        assert container is None or container in text
        assert uid is None or uid in text.replace("_", "-")


@given(st.binary(max_size=300))
def test_every_byte_string_has_an_owner(raw: bytes) -> None:
    """Names are bytes; what is no UTF-8 arrives as surrogates and means nothing."""
    assert parse_owner(raw.decode("utf-8", "surrogateescape")) == Owner()
    assert parse_owner(f"0::{PATH}/" + raw.replace(b"\n", b"").decode("utf-8", "surrogateescape")).pairs[0] == (
        POD,
        MAIN,
    )


@pytest.mark.parametrize(
    "segment",
    [
        f"pod{POD.upper()}",
        f"Pod{POD}",
        f"POD{POD}",
        f"pod{POD}\r",
        f"pod{POD}\x0b",
        f"pod{POD} ",
        f" pod{POD}",
        f"pod{POD}.scope",
        f"pod{POD}.slice.slice",
        f"pod{POD}x",
        f"pod{POD[:-1]}",
        f"pod{POD[:-1]}\u0661",
        f"pod{POD[:-1]}\uff11",
        f"xpod{POD}",
        f"kubepods\u2014pod{POD}",
        f"kubepods pod{POD}",
        f"pod-{POD}",
        "pod" + POD.replace("-", ""),
        "pod" + "g" * 32,
        "pod",
        "",
        f"pod{POD}\ud800",
        f"pod{POD}\x00",
        f"pod{POD}:cri-containerd",
        f"pod{POD}:cri-containerd:{MAIN}:x",
    ],
)
def test_only_a_whole_segment_names_a_pod(segment: str) -> None:
    """Upper case, foreign digits, control characters, anything before or after: no pod."""
    expected = () if segment != "pod" + POD.replace("-", "") else ((PodUid(POD.replace("-", "")), None),)
    assert parse_owner(f"0::/kubepods/{segment}\n").pairs == expected


@pytest.mark.parametrize(
    "segment",
    [
        MAIN.upper().replace("9", "A"),
        MAIN[:-1],
        MAIN + "0",
        f"{MAIN}.slice",
        f"{MAIN}.scope.scope",
        f"{MAIN}\r",
        f"{MAIN} ",
        f"{MAIN[:-1]}\u0669",
        f"crio-conmon-{MAIN}",
        f"libpod-conmon-{MAIN}",
        f"kata_{MAIN}",
        f"kata_overhead-{MAIN}",
        f"run-{MAIN}-rootfs.mount",
        f"-{MAIN}",
        f"x-{MAIN}.scope",
        f"CRI-CONTAINERD-{MAIN}.scope",
        f"x:crio-conmon:{MAIN}",
        f"x::{MAIN}",
        f"x:{MAIN}",
        f":{MAIN}",
        f"x:cri-containerd:{MAIN}:x",
    ],
)
def test_only_a_whole_segment_names_a_container(segment: str) -> None:
    """Monitors, mounts, sandboxes, cut or dressed ids: no container."""
    assert parse_owner(f"0::/kubepods/pod{POD}/{segment}\n").pairs == ((POD, None),)


def test_containers_without_a_pod_are_all_told() -> None:
    """Docker in docker, or a sibling seen from a private cgroup namespace: an inventory may know either."""
    assert parse_owner(f"0::/docker/{MAIN}/docker/{FOREIGN}\n").pairs == ((None, MAIN), (None, FOREIGN))


@pytest.mark.parametrize("prefix", ["cri-containerd", "crio", "docker", "nerdctl", "libpod", "libpod-payload"])
def test_a_slice_handed_to_a_runtime_without_systemd(prefix: str) -> None:
    """`<slice>:<prefix>:<id>` in one segment names both, for each prefix that is one of a container."""
    assert parse_owner(f"0::/kubepods-pod{POD.replace('-', '_')}.slice:{prefix}:{MAIN}\n") == OURS


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_begins_a_line(separator: str) -> None:
    """A folder's name may hold what other tools take for the end of a line; it cannot add a line of its own."""
    assert parse_owner(f"0::{PATH}/x{separator}1:memory:{ELSEWHERE}\n").pairs[0] == (POD, MAIN)
    assert not parse_owner(f"0::{PATH}/x{separator}1:memory:{ELSEWHERE}\n").contradictory


def test_a_removed_cgroup_keeps_its_owner() -> None:
    """The kernel marks it at the very end; the mark anywhere else is part of a name."""
    assert parse_owner(f"0::{PATH} (deleted)\n") == OURS
    assert parse_owner(f"0::/kubepods/pod{POD} (deleted)/{MAIN}\n").pairs == ((None, MAIN),)


# --- several lines: cgroup v1 and hybrid ------------------------------------------------------------------------------


def lines(*paths: str) -> str:
    """A v1 file with one hierarchy for each path."""
    return "".join(f"{number}:c{number}:{path}\n" for number, path in enumerate(paths, 1))


@pytest.mark.parametrize(
    "paths",
    [
        (PATH, PATH, PATH),
        (PATH, "/"),
        ("/", PATH),
        ("/system.slice/containerd.service", PATH),
        (f"/system.slice/docker-{FOREIGN}.scope", PATH),
        (f"/kubepods/pod{POD}", PATH),
        (PATH, f"/kubepods/pod{POD}"),
        (PATH, f"{PATH}/init.scope"),
        (PATH, f"/kubepods-burstable-pod{POD.replace('-', '_')}.slice:cri-containerd:{MAIN}"),
        (PATH, f"/../../pod{POD}/{MAIN}"),
    ],
)
def test_lines_that_say_the_same_or_less(paths: tuple[str, ...]) -> None:
    """Some hierarchies say more than others, some nothing, each in its driver's spelling; the order has no meaning."""
    assert parse_owner(lines(*paths)) == OURS
    assert parse_owner(lines(*reversed(paths))) == OURS


@pytest.mark.parametrize(
    "paths",
    [
        (PATH, ELSEWHERE),
        (PATH, PATH, PATH, f"/kubepods/pod{OTHER}"),
        (PATH, f"/kubepods/burstable/pod{POD}/{FOREIGN}"),
        (PATH, f"{ELSEWHERE}{PATH}"),
        (f"/docker/{MAIN}", f"/docker/{FOREIGN}"),
        (f"/docker/{MAIN}{PATH}", f"/docker/{FOREIGN}{PATH}"),
    ],
)
def test_lines_that_disagree_are_nobodys(paths: tuple[str, ...]) -> None:
    """Two pods, or two containers: nobody is believed, rather than one of them by the order of lines."""
    assert parse_owner(lines(*paths)) == Owner(contradictory=True)
    assert parse_owner(lines(*reversed(paths))) == Owner(contradictory=True)


def test_disagreement_below_a_container_leaves_the_container() -> None:
    """Who may write cgroups cannot make its own container contradictory, and so hide what it holds."""
    third = f"/kubepods/pod{OTHER}/{MAIN}"
    assert parse_owner(lines(PATH + ELSEWHERE, PATH + third, PATH)) == OURS
    assert parse_owner(lines(PATH + ELSEWHERE, PATH)).pairs == ((POD, MAIN), (OTHER, FOREIGN))


@given(st.permutations([PATH, "/", PATH + ELSEWHERE, f"/docker/{FOREIGN}{PATH}", f"/kubepods/pod{POD}"]))
def test_the_order_of_lines_means_nothing(paths: list[str]) -> None:
    """Hierarchies are numbered as they were mounted."""
    assert parse_owner(lines(*paths)).pairs == ((None, FOREIGN), (POD, MAIN), (OTHER, FOREIGN))


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    ["a", "/", ":", "pod", "-pod", "-pod0", f"pod{POD}-", f"/pod{POD}", f"/{MAIN}", "0" * 31 + "-", "/x:y:z", "\n::/"],
)
def test_long_paths_end(unit: str) -> None:
    """A third of a million characters are read at once; with a square of them as steps this would run for minutes."""
    owner = parse_owner(f"0::{PATH}/" + unit * (300_000 // len(unit)))
    assert owner.pairs[0] == (POD, MAIN)
    assert len(owner.pairs) == (1 + 300_000 // len(unit) if unit == f"/pod{POD}" else 1)
