"""
Fuzz target: the text of `/proc/<pid>/cgroup`, of which a user of the node chooses folders.

In: a reader's number, then the text. The promise: nothing is raised, and the owner is the one that a second parser
finds. That parser has no regular expression: it walks a path folder by folder, as the documentation says. So a path
names no pod that does not stand in it, below the kubelet's own folders. What a workload adds below its own
container, or a user below another folder, changes nothing.
"""

from string import ascii_letters, digits

from exporter.base.cgroup_owner import USUAL, Origin, PodCgroups, configured, learned
from exporter.model import ContainerId, Owner, PodUid
from fuzz.drawing import Draw

POD, OWN_POD = "2c48913c-b29f-11e7-9350-020968147796", "a2830d0d-b0f0-4ff0-81b5-0ee4e299cf80"
ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"

READERS = (
    USUAL,
    learned("0::/", "0::/../..\n"),
    learned(f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{OWN_POD}.slice/cri-containerd-{ID}", ""),
    learned(f"0::/system.slice/containerd.service/kubepods/burstable/pod{OWN_POD}/{ID}\n", ""),
    configured("/user.slice"),
    configured("/"),
)

_HEX, _WORD = set("0123456789abcdef"), set(ascii_letters + digits + "_.-")
_RUNTIMES = ("cri-containerd-", "crio-", "docker-", "nerdctl-", "libpod-", "libpod-payload-", "")
_KUBELETS = {"kubelet", "burstable", "besteffort"}
_TIERS = ("kubepods", "kubepods-burstable", "kubepods-besteffort")

_Named = tuple[str | None, str | None]


def check(data: bytes) -> None:
    """Compare each reader with the reference."""
    draw = Draw(data)
    pods, text = draw.one_of(READERS), draw.line()
    below = draw.line().replace("\n", "")
    found = pods.owner(text)
    assert found == expected(pods, text), found
    assert pods.owner(text) == found, "another answer for the same text"
    for path in _paths(text):
        _check_path(pods, path, below)
    _check_learned(text, draw.line())


def _check_path(pods: PodCgroups, path: str, below: str) -> None:
    named = _pair(pods, path)
    if named is not None and None not in named and not path.endswith(" (deleted)"):
        deeper = pods.owner(f"0::{path}/{below}")
        assert deeper == _owner([named]), f"a folder below the container changes its owner: {deeper}"
    if named is not None and named[0] is not None:
        assert not pods.leads(path), "a pod's folder leads to pods"
    elsewhere = pods.elsewhere(f"0::{path}")
    assert elsewhere is None or (named is None and path.startswith(elsewhere)), elsewhere
    if path.startswith("/"):
        assert USUAL.owner(f"0::/user.slice{path}") == Owner(), "a user's folder names a pod"


def _check_learned(own: str, init: str) -> None:
    found = learned(own, init)
    for root in found.roots:
        assert found.origin is not Origin.OWN_POD or any(path.startswith(root) for path in _paths(own)), root
    assert found.owner(own) == expected(found, own)
    assert found.described


def expected(pods: PodCgroups, text: str) -> Owner:
    """Find the owner by walking the folders of each line."""
    return _owner([pair for path in _paths(text) if (pair := _pair(pods, path)) is not None])


def _owner(found: list[_Named]) -> Owner:
    with_pod = [pair for pair in found if pair[0] is not None]
    believed = set(with_pod or found)
    if not believed:
        return Owner()
    pods, containers = {pod for pod, _ in believed}, {container for _, container in believed if container is not None}
    if len(pods) > 1 or len(containers) > 1:
        return Owner(contradictory=True)
    pod, container = next(iter(pods)), next(iter(containers), None)
    return Owner(((None if pod is None else PodUid(pod), None if container is None else ContainerId(container)),))


def _paths(text: str) -> list[str]:
    return [":".join(line.split(":")[2:]) for line in text.split("\n")]


def _pair(pods: PodCgroups, path: str) -> _Named | None:
    path = path.removesuffix(" (deleted)")
    anywhere = pods.origin is Origin.CONFIGURED
    folders = path.split("/")
    if folders[0] == "" and folders[1:2] == [".."]:
        while folders[1:2] == [".."]:
            del folders[1]
        found = _walk(folders[1:], anywhere=False, bare=True)
        if found is not None or not anywhere:
            return found
    path = "/".join(folders)
    for root in pods.roots:
        if path.startswith(f"{root}/"):
            return _walk(path[len(root) + 1 :].split("/"), anywhere=anywhere, bare=anywhere)
    return None


def _walk(folders: list[str], *, anywhere: bool, bare: bool) -> _Named | None:
    for place, folder in enumerate(folders):
        pod = _pod(folder)
        if pod is not None:
            inner = [pod[1], *map(_id, folders[place + 1 :])]
            return pod[0], next((found for found in inner if found is not None), None)
        if not anywhere and not _kubelets(folder):
            break
    container = _id(folders[0]) if bare and folders else None
    return None if container is None else (None, container)


def _kubelets(folder: str) -> bool:
    name = folder.removesuffix(".slice")
    if name in _KUBELETS or name in _TIERS:
        return True
    return any(name.endswith(f"-{tier}") and set(name[: -len(tier)]) <= _WORD for tier in _TIERS)


def _pod(folder: str) -> tuple[str, str | None] | None:
    name, *rest = folder.split(":")
    if len(rest) not in (0, 2):
        return None
    name = name.removesuffix(".slice")
    for uid in (name[-36:], name[-32:]):
        before = name.removesuffix(uid)
        if _uid(uid) and before.endswith("pod") and (before == "pod" or before[-4:] == "-pod") and set(before) <= _WORD:
            return uid.replace("_", "-"), _id("-".join(rest)) if rest else None
    return None


def _uid(text: str) -> bool:
    if len(text) == 32:
        return set(text) <= _HEX
    parts = text.replace("_", "-").split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and set("".join(parts)) <= _HEX


def _id(folder: str) -> str | None:
    name = folder.removesuffix(".scope")
    for runtime in _RUNTIMES:
        found = name.removeprefix(runtime)
        if (not runtime or found != name) and len(found) == 64 and set(found) <= _HEX:
            return found
    return None
