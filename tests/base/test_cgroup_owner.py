"""Promises of exporter/base/cgroup_owner.py: the owner of a process, by the text of /proc/<pid>/cgroup."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.base.cgroup_owner import USUAL, Origin, PodCgroups, configured, learned
from exporter.model import ContainerId, Owner, PodUid

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

BESIDE = {"9", "14", "15", "16"}
"""Cases whose pods are below folders that only their own kubelet's daemon knows."""


def reader(case: str, text: str) -> PodCgroups:
    """The daemon that reads this line: one whose own pod is beside it, or one that learned nothing."""
    return learned(text, "") if case.split(maxsplit=1)[0] in BESIDE else USUAL


def deeper(text: str, below: str) -> str:
    """
    The same file for a process that sits `below` its cgroup, in each hierarchy in which it has one.

    Where a runtime left it in its own cgroup (hybrid, `0::/system.slice/containerd.service`) it can make nothing.
    """
    found = [line.removesuffix(" (deleted)") for line in text.splitlines()]
    return "".join(f"{line}{below}\n" if all(USUAL.owner(line).outermost) else f"{line}\n" for line in found)


@pytest.mark.parametrize(("case", "text", "pod", "container"), CASES, ids=[case for case, *_ in CASES])
def test_lines_of_real_nodes(case: str, text: str, pod: PodUid | None, container: ContainerId | None) -> None:
    """Each runtime, driver, cgroup version and place of the reader: the pod and the container, or neither."""
    owner = reader(case, text).owner(text)
    assert owner.outermost == (pod, container), case
    assert not owner.contradictory


def test_no_line_is_forgotten() -> None:
    """All cases of the fixture file are read, the one with several lines too."""
    assert len(CASES) == FIXTURE.read_text().count("\n== ") == 54
    assert max(text.count("\n") for text in TEXTS) == 3


# --- where the pods are -----------------------------------------------------------------------------------------------

UID = POD.replace("-", "_")
SLICES = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice/cri-containerd-{MAIN}.scope"
KIND = (
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{UID}.slice/cri-containerd-{MAIN}.scope"
)
ELSE = OTHER.replace("-", "_")
DELEGATED = [
    "user.slice/user-1000.slice/user@1000.service",
    "user.slice/user-1000.slice/session-3.scope",
    "system.slice/tenant.service",
    "system.slice/slurmstepd.scope/job_123/step_0/user/task_0",
    "lxc.payload.web",
    "lxc/web",
    "machine.slice/machine-web.scope",
    f"docker/{FOREIGN}",
    f"system.slice/docker-{FOREIGN}.scope",
    f"kubepods-fake.slice/x.service/kubepods.slice/kubepods-pod{ELSE}.slice",
    "kubeletx/kubepods",
    "kubepods.service",
]
"""Folders that belong to a user, a service, a job or a container of the node."""
FORGED = [
    f"pod{OTHER}/{FOREIGN}",
    f"kubepods/burstable/pod{OTHER}/{FOREIGN}",
    f"kubepods.slice/kubepods-pod{ELSE}.slice/cri-containerd-{FOREIGN}.scope",
    f"kubepods-pod{ELSE}.slice:cri-containerd:{FOREIGN}",
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{ELSE}.slice/crio-{FOREIGN}.scope/container",
    f"../pod{OTHER}/{FOREIGN}",
    FOREIGN,
    f"docker-{FOREIGN}.scope",
]
"""What such a user makes there to pass for a container of another pod."""

READERS = {
    "own pod, cgroupfs": learned(f"0::/kubepods/besteffort/pod{POD}/{MAIN}\n", "0::/init.scope\n"),
    "own pod, guaranteed": learned(f"0::/kubepods/pod{POD}/{MAIN}\n", "0::/init.scope\n"),
    "own pod, systemd": learned(f"0::/{SLICES}\n", "0::/init.scope\n"),
    "own pod, systemd, CRI-O and crun": learned(
        f"0::/{SLICES.replace('cri-containerd', 'crio')}/container\n", "0::/init.scope\n"
    ),
    "own pod, a cgroup root": learned(f"0::/ml/kubepods/burstable/pod{POD}/{MAIN}\n", "0::/init.scope\n"),
    "own pod, kind": learned(f"0::/{KIND}\n", "0::/init.scope\n"),
    "own pod, kind, seen from outside": learned(f"0::/docker/{MAIN}/{KIND}\n", "0::/docker/{MAIN}/init.scope\n"),
    "own pod, kind in a pod": learned(
        f"4:memory:/kubepods/burstable/pod{OTHER}/{FOREIGN}/kubepods/pod{POD}/{MAIN}\n", "4:memory:/\n"
    ),
    "own pod, version 1": learned(f"4:memory:{PATH}\n1:name=systemd:{PATH}\n", "4:memory:/\n1:name=systemd:/\n"),
    "own pod, hybrid": learned(f"4:memory:{PATH}\n0::/system.slice/containerd.service\n", "4:memory:/\n0::/\n"),
    "own pod, a runtime without systemd": learned(
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{UID}.slice:cri-containerd:{MAIN}\n", "0::/\n"
    ),
    "own pod, the same at the top": learned(f"0::/kubepods-pod{UID}.slice:cri-containerd:{MAIN}\n", "0::/\n"),
    "own pod, static": learned(f"0::/kubepods/burstable/pod{'c' * 32}/{MAIN}\n", "0::/\n"),
    "own cgroup namespace": learned("0::/\n", "0::/../../../../init.scope\n"),
    "own cgroup namespace, crun": learned("0::/container\n", "0::/../../../../init.scope\n"),
    "outside of pods": learned("0::/system.slice/gpusteward.service\n", "0::/init.scope\n"),
    "from a login": learned("0::/user.slice/user-1000.slice/session-3.scope\n", "0::/init.scope\n"),
    "nothing to read": learned("", ""),
    "configured": configured("/kubepods.slice"),
}
"""Daemons by what they could learn, or what was configured."""


@pytest.mark.parametrize("who", READERS)
@pytest.mark.parametrize("folder", DELEGATED)
def test_no_folder_outside_of_the_kubelets_names_a_pod(who: str, folder: str) -> None:
    """A user that was handed a cgroup may make any name in it; its processes stay the host's, for every daemon."""
    for forged in FORGED:
        for above in ("", "/../..", "/../../../.."):
            for text in (f"0::{above}/{folder}/{forged}\n", f"1:name=systemd:{above}/{folder}/{forged}\n4:memory:/\n"):
                assert READERS[who].owner(text) == Owner(), text


@pytest.mark.parametrize("who", READERS)
def test_nobody_becomes_contradictory_by_a_folder_of_a_user(who: str) -> None:
    """Version 1: a pod's process whose user has a folder in one hierarchy is still that pod's."""
    text = f"4:memory:/../../../burstable/pod{POD}/{MAIN}\n1:name=systemd:/user.slice/pod{OTHER}/{FOREIGN}\n"
    assert READERS[who].owner(text) == OURS


@pytest.mark.parametrize(
    ("who", "root"),
    [
        ("own pod, cgroupfs", "/kubepods"),
        ("own pod, guaranteed", "/kubepods"),
        ("own pod, systemd", "/kubepods.slice"),
        ("own pod, systemd, CRI-O and crun", "/kubepods.slice"),
        ("own pod, a cgroup root", "/ml/kubepods"),
        ("own pod, kind", "/kubelet.slice/kubelet-kubepods.slice"),
        ("own pod, kind, seen from outside", f"/docker/{MAIN}/kubelet.slice/kubelet-kubepods.slice"),
        ("own pod, kind in a pod", f"/kubepods/burstable/pod{OTHER}/{FOREIGN}/kubepods"),
        ("own pod, version 1", "/kubepods"),
        ("own pod, hybrid", "/kubepods"),
        ("own pod, a runtime without systemd", "/system.slice/containerd.service"),
        ("own pod, the same at the top", ""),
        ("own pod, static", "/kubepods"),
    ],
)
def test_a_daemon_in_a_pod_learns_where_the_pods_are(who: str, root: str) -> None:
    """From the path of its own pod, and the pods beside it are found there; those of another place are not."""
    pods = READERS[who]
    assert (pods.roots, pods.origin) == ((root,), Origin.OWN_POD)
    for tier in ("", "/besteffort", "/kubepods-burstable.slice"):
        for pod in (f"/pod{OTHER}/{FOREIGN}", f"/kubepods-burstable-pod{ELSE}.slice/docker-{FOREIGN}.scope/container"):
            assert pods.owner(f"0::{root}{tier}{pod}\n") == Owner(((OTHER, FOREIGN),))
    assert not root or pods.owner(f"0::/elsewhere/kubepods/pod{OTHER}/{FOREIGN}\n") == Owner()


@pytest.mark.parametrize("who", ["own cgroup namespace", "own cgroup namespace, crun"])
@pytest.mark.parametrize(
    "path",
    [
        f"/../../pod{OTHER}/{FOREIGN}",
        f"/../../../pod{OTHER}/{FOREIGN}",
        f"/../../../burstable/pod{OTHER}/{FOREIGN}",
        f"/../../kubepods-burstable-pod{ELSE}.slice/cri-containerd-{FOREIGN}.scope",
        f"/../../../kubepods-pod{ELSE}.slice/crio-{FOREIGN}.scope/container",
        f"/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{ELSE}.slice/docker-{FOREIGN}.scope/init.scope",
        f"/../../../../kubelet-kubepods.slice/kubelet-kubepods-pod{ELSE}.slice/cri-containerd-{FOREIGN}.scope",
        f"/../../kubepods.slice/kubepods-pod{ELSE}.slice/cri-containerd-{FOREIGN}.scope",
    ],
)
def test_a_daemon_with_a_cgroup_namespace_of_its_own_sees_pods_around_itself(who: str, path: str) -> None:
    """Each driver and class, from each place in which the daemon's pod may be; a container beside it has no pod."""
    assert READERS[who].origin is Origin.NAMESPACE
    assert READERS[who].owner(f"0::{path}\n") == Owner(((OTHER, FOREIGN),))
    assert READERS[who].owner(f"0::/../cri-containerd-{FOREIGN}.scope\n") == Owner(((None, FOREIGN),))
    assert READERS[who].owner(f"0::{path}{PATH}\n") == Owner(((OTHER, FOREIGN),)), "what it makes below is its own"


@pytest.mark.parametrize("who", ["outside of pods", "from a login", "nothing to read"])
def test_a_daemon_outside_of_pods_believes_the_usual_places(who: str) -> None:
    """k3s, k0s, MicroK8s, kubeadm and managed nodes: /kubepods and /kubepods.slice; inside of a kind node, kind's."""
    pods = READERS[who]
    assert pods == USUAL
    for path in (PATH, f"/{SLICES}", f"/{KIND}", f"/kubelet{PATH}", f"/kubepods-pod{UID}.slice:cri-containerd:{MAIN}"):
        assert pods.owner(f"0::{path}\n") == OURS
    assert pods.owner(f"0::/ml{PATH}\n") == Owner(), "a cgroup root of one's own has to be configured"


def test_below_a_configured_folder_any_name_leads_to_a_pod() -> None:
    """Kubelets with tiers of their own, or without cgroups for pods: what the operator named is the kubelet's."""
    assert configured("/kubepods/").owner(f"0::/kubepods/offline/besteffort/pod{POD}/{MAIN}\n") == OURS
    assert configured("/ml/kubepods").owner(f"0::/ml{PATH}{ELSEWHERE}\n") == OURS
    assert configured("/ml/kubepods").owner(f"0::/../../ml{PATH}\n") == OURS, "docker, with a namespace of its own"
    assert configured("/system.slice").owner(f"0::/system.slice/crio-{MAIN}.scope\n") == Owner(((None, MAIN),))
    for path in (PATH, f"/ml/kubepodsx/pod{POD}/{MAIN}", f"/x/ml{PATH}"):
        assert configured("/ml/kubepods").owner(f"0::{path}\n") == Owner(), path


def test_a_pod_that_is_named_elsewhere_is_told() -> None:
    """So that a wrong folder, or a forger, is seen: where it is; what is the kubelet's or names no pod is not."""
    user = "/user.slice/user-1000.slice/user@1000.service"
    assert USUAL.elsewhere(f"0::{user}/pod{POD}/{MAIN}\n") == user
    assert (
        USUAL.elsewhere(f"0::/docker/{MAIN}/kubepods/burstable/pod{POD}/{MAIN}\n")
        == f"/docker/{MAIN}/kubepods/burstable"
    )
    assert configured("/ml").elsewhere(f"0::/pod{POD}/{MAIN}\n") == "/"
    for case, text in ((str(case), str(text)) for case, text, *_ in CASES):
        assert (USUAL.elsewhere(text) is not None) == (case.split(maxsplit=1)[0] in BESIDE)


@pytest.mark.parametrize(
    ("pods", "yes", "no"),
    [
        (USUAL, ["/kubepods", "/kubepods/burstable", "/kubelet.slice", "/kubelet/kubepods"], ["/user.slice", "/lxc"]),
        (configured("/ml/kubepods"), ["/ml", "/ml/kubepods", "/ml/kubepods/any"], ["/kubepods", "/mlx", "/ml/x"]),
        (READERS["own pod, systemd"], ["/kubepods.slice", "/kubepods.slice/kubepods-besteffort.slice"], ["/kubepods"]),
    ],
)
def test_only_the_way_to_pods_is_walked(pods: PodCgroups, yes: list[str], no: list[str]) -> None:
    """A tree of cgroups is searched where the kubelet has pods, so a million folders of a user cost no round."""
    assert [path for path in (*yes, *no) if pods.leads(path)] == yes
    assert not pods.leads(f"{yes[-1]}/pod{POD}")


# --- outside in -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(35)
def test_a_sandboxed_pod_has_no_container() -> None:
    """gVisor runs in the pod's own cgroup; a further pod below does not lend it a pod."""
    assert USUAL.owner(f"0::/kubepods/pod{POD}\n").pairs == ((POD, None),)
    assert USUAL.owner(f"0::/kubepods/pod{POD}/pod{OTHER}\n").pairs == ((POD, None),)


def test_containers_below_a_container_are_its_own() -> None:
    """Docker or kind in a pod: whatever it starts belongs to the pod's container."""
    assert USUAL.owner(f"0::{PATH}/docker/{FOREIGN}/system.slice/docker-{FOREIGN}.scope\n") == OURS
    assert USUAL.owner(f"0::{PATH}{ELSEWHERE}\n") == OURS


@pytest.mark.parametrize(
    "below", ["/x", "/init.scope", ELSEWHERE, f"/docker/{FOREIGN}", "/a:b:c", "/..", "//", " (deleted)"]
)
def test_nothing_below_changes_whose_it_is(below: str) -> None:
    """On each line of the fixture: a container that makes folders below its own cgroup stays the same container."""
    known = {text: USUAL.owner(text) for text in TEXTS if all(USUAL.owner(text).outermost)}
    assert len(known) > 20
    assert {text: USUAL.owner(deeper(text, below)) for text in known} == known


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


@given(st.sampled_from([text for text in TEXTS if all(USUAL.owner(text).outermost)]), st.lists(SEGMENT, max_size=8))
def test_no_folder_that_a_workload_can_make_changes_whose_it_is(text: str, segments: list[str]) -> None:
    """Any names at any depth: line feeds and slashes apart, which the kernel refuses in a name, all is tried."""
    assert USUAL.owner(deeper(text, "".join(f"/{segment}" for segment in segments))) == USUAL.owner(text)


@given(st.text(st.characters(exclude_categories=())))
@example("0::")
@example("::")
@example("\n\n::/\n")
@example("no colons at all")
@example("0::/pod\x00" + POD)
@example("12:memory" + PATH)
def test_every_text_has_an_owner(text: str) -> None:
    """Whatever stands in the file: an owner, never an exception, and only pods and ids that stand in it."""
    owner = USUAL.owner(text)
    for uid, container in owner.pairs:
        assert container is None or container in text
        assert uid is None or uid in text.replace("_", "-")


@given(st.binary(max_size=300))
def test_every_byte_string_has_an_owner(raw: bytes) -> None:
    """Names are bytes; what is no UTF-8 arrives as surrogates and means nothing."""
    assert USUAL.owner(raw.decode("utf-8", "surrogateescape")) == Owner()
    assert USUAL.owner(f"0::{PATH}/" + raw.replace(b"\n", b"").decode("utf-8", "surrogateescape")).pairs[0] == (
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
    assert USUAL.owner(f"0::/kubepods/{segment}\n").pairs == expected


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
    assert USUAL.owner(f"0::/kubepods/pod{POD}/{segment}\n").pairs == ((POD, None),)


@pytest.mark.parametrize("prefix", ["cri-containerd", "crio", "docker", "nerdctl", "libpod", "libpod-payload"])
def test_a_slice_handed_to_a_runtime_without_systemd(prefix: str) -> None:
    """`<slice>:<prefix>:<id>` in one segment names both, for each prefix that is one of a container."""
    assert USUAL.owner(f"0::/kubepods-pod{POD.replace('-', '_')}.slice:{prefix}:{MAIN}\n") == OURS


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_begins_a_line(separator: str) -> None:
    """A folder's name may hold what other tools take for the end of a line; it cannot add a line of its own."""
    assert USUAL.owner(f"0::{PATH}/x{separator}1:memory:{ELSEWHERE}\n").pairs[0] == (POD, MAIN)
    assert not USUAL.owner(f"0::{PATH}/x{separator}1:memory:{ELSEWHERE}\n").contradictory


def test_a_removed_cgroup_keeps_its_owner() -> None:
    """The kernel marks it at the very end; the mark anywhere else is part of a name."""
    assert USUAL.owner(f"0::{PATH} (deleted)\n") == OURS
    assert USUAL.owner(f"0::/kubepods/pod{POD} (deleted)/{MAIN}\n").pairs == ()


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
    assert USUAL.owner(lines(*paths)) == OURS
    assert USUAL.owner(lines(*reversed(paths))) == OURS


@pytest.mark.parametrize(
    "paths",
    [
        (PATH, ELSEWHERE),
        (PATH, PATH, PATH, f"/kubepods/pod{OTHER}"),
        (PATH, f"/kubepods/burstable/pod{POD}/{FOREIGN}"),
        (PATH, f"{ELSEWHERE}{PATH}"),
        (f"/../{MAIN}", f"/../{FOREIGN}"),
    ],
)
def test_lines_that_disagree_are_nobodys(paths: tuple[str, ...]) -> None:
    """Two pods, or two containers: none is believed, rather than one of them by the order of lines."""
    assert USUAL.owner(lines(*paths)) == Owner(contradictory=True)
    assert USUAL.owner(lines(*reversed(paths))) == Owner(contradictory=True)


def test_disagreement_below_a_container_leaves_the_container() -> None:
    """A process that may write cgroups cannot make its container contradictory, and so cannot hide its memory."""
    third = f"/kubepods/pod{OTHER}/{MAIN}"
    assert USUAL.owner(lines(PATH + ELSEWHERE, PATH + third, PATH)) == OURS


@given(st.permutations([PATH, "/", PATH + ELSEWHERE, f"/docker/{FOREIGN}{PATH}", f"/kubepods/pod{POD}"]))
def test_the_order_of_lines_means_nothing(paths: list[str]) -> None:
    """Hierarchies are numbered as they were mounted."""
    assert USUAL.owner(lines(*paths)) == OURS


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    ["a", "/", ":", "pod", "-pod", "-pod0", f"pod{POD}-", f"/pod{POD}", f"/{MAIN}", "0" * 31 + "-", "/x:y:z", "\n::/"],
)
def test_long_paths_end(unit: str) -> None:
    """A hundred thousand characters are read at once; with a square of them as steps it would take minutes."""
    long = unit * (100_000 // len(unit))
    assert USUAL.owner(f"0::{PATH}/{long}") == OURS
    for pods in (USUAL, READERS["own cgroup namespace"], configured("/user.slice")):
        for start in ("/", "/user.slice/", "/../../", "/kubepods/"):
            assert not pods.owner(f"0::{start}{long}").contradictory
