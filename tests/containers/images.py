"""Container images made of local files: no registry, no build tool, the same bytes for the same input.

In: files of this machine, an entry point. Out: a docker-archive (`docker save` format) that containerd imports.
Law: an image is its content. No clock, no user name, no order of a directory gets into it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# A name with a dot in its first part is taken as it stands; any other would become docker.io/library/….
SANDBOX = "gpusteward.test/sandbox:1"
BUSYBOX = "gpusteward.test/busybox:1"

BUSYBOX_BINARY = Path("/bin/busybox")  # Debian's busybox-static
APPLETS = """
cat chmod cp echo env false grep head hostname id kill ln ls mkdir mount mv nohup ps pwd readlink rm rmdir sed seq
setsid sh sleep sort tail test touch tr true umount uname wc
"""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build_image(
    tar: Path,
    *,
    name: str,
    files: Mapping[str, Path],
    links: Mapping[str, str] | None = None,
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Path:
    """Write an image with one layer and return `tar`.

    name:   full name with tag, for instance "gpusteward.test/workload:1".
    files:  path in the image → file here; each keeps only its content and is executable by all.
    links:  path in the image → what the symbolic link says.
    """
    layer = _layer(files, links or {})
    config = _json(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Entrypoint": list(entrypoint),
                "Cmd": list(command),
                "Env": [f"{key}={value}" for key, value in {"PATH": "/bin", **(env or {})}.items()],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
            "history": [{"created": "1970-01-01T00:00:00Z"}],
        }
    )
    names = {"config": f"{_digest(config)}.json", "layer": f"{_digest(layer)}/layer.tar"}
    manifest = _json([{"Config": names["config"], "RepoTags": [name], "Layers": [names["layer"]]}])
    tar.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tar, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member, content in ((names["config"], config), (names["layer"], layer), ("manifest.json", manifest)):
            archive.addfile(_member(member, size=len(content)), io.BytesIO(content))
    return tar


def sandbox_image(tar: Path) -> Path:
    """What holds a pod's namespaces open: it sleeps. Process 1 does not react to SIGTERM by itself, hence the trap."""
    wait = "trap exit TERM INT; while :; do sleep 2147483647 & wait; done"
    return build_image(tar, name=SANDBOX, files={"bin/sh": BUSYBOX_BINARY}, entrypoint=["/bin/sh", "-c", wait])


def busybox_image(tar: Path, *, name: str = BUSYBOX, files: Mapping[str, Path] | None = None) -> Path:
    """A shell and its tools, and more files on request; runs until a signal stops it."""
    applets = {f"bin/{applet}": "busybox" for applet in APPLETS.split()}
    wait = "trap exit TERM INT; sleep 2147483647 & wait"
    everything = {"bin/busybox": BUSYBOX_BINARY, **(files or {})}
    return build_image(tar, name=name, files=everything, links=applets, command=["/bin/sh", "-c", wait])


def _layer(files: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    folders = {"tmp", "proc", "sys", "dev", "etc"}
    for path in (*files, *links):
        folders.update(str(parent) for parent in Path(path.strip("/")).parents if str(parent) != ".")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in sorted(folders):
            archive.addfile(_member(folder, kind=tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755))
        for path, source in sorted(files.items()):
            content = source.read_bytes()
            archive.addfile(_member(path.strip("/"), size=len(content), mode=0o755), io.BytesIO(content))
        for path, target in sorted(links.items()):
            archive.addfile(_member(path.strip("/"), kind=tarfile.SYMTYPE, target=target, mode=0o777))
    return out.getvalue()


def _member(
    path: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = ""
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.size, info.type, info.mode, info.linkname = size, kind, mode, target
    return info


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
