"""A containerd of our own: root, state and socket in a folder given by the caller, its shims in a cgroup of its own.

In: a folder. Out: a CRI socket, and after `stop()` nothing: no process, mount, cgroup or file that this bed made.
Law: what a bed leaves behind when its process is killed, the next `start()` finds and removes, whatever its folder.
Which bed a thing belongs to is read from the bed's token (see cgroupfs), never guessed from a process name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from containers import images, leftovers
from containers.cgroupfs import Ledger, new_token
from containers.cri import Cri, CriError
from patience import PATIENCE

SOCKET_LENGTH = 104 - len(".ttrpc")  # containerd's own limit, for the second socket that it makes beside the first

SYSTEM_PATH = ":/usr/sbin:/sbin"  # where runc is; the PATH of a user who became root may lack it
UNUSED = ("aufs", "btrfs", "devmapper", "zfs")  # snapshotters; each would only say that it cannot
CRI_OPTIONS: dict[str, str | int | bool] = {
    "sandbox_image": images.SANDBOX,
    # Where root lacks CAP_SYS_RESOURCE the sandbox's -998 is refused, and runc dies of it.
    "restrict_oom_score_adj": True,
    "netns_mounts_under_state_dir": True,
    "stream_server_address": "127.0.0.1",
    "stream_server_port": "0",
}


class BedError(Exception):
    """The bed cannot do what was asked; the message has the end of containerd's own log."""


class Containerd:
    """One containerd, from `start()` to `stop()`; also a context manager.

    folder:        where everything of it lives; a fresh sub-folder per bed is made in it.
    snapshotter:   "overlayfs" or "native"; None tries which one this machine can do.
    cni_bin_dir, cni_conf_dir:
                   folders of CNI plugins and of their configuration; None is enough for host-network pods.
    cri_options:   more keys for the table [plugins."io.containerd.grpc.v1.cri"], over CRI_OPTIONS.
    runtimes:      programs like runc, by the name of their handler, besides "runc".
    programs:      folder of containerd, its shim and ctr; None: this machine's.
    prefix:        words before the command, for instance ["nsenter", "--mount=/run/x"]; they must exec the rest.
    """

    def __init__(
        self,
        folder: Path,
        *,
        snapshotter: str | None = None,
        cni_bin_dir: Path | None = None,
        cni_conf_dir: Path | None = None,
        cri_options: Mapping[str, str | int | bool] | None = None,
        runtimes: Mapping[str, Path] | None = None,
        programs: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.token = new_token()
        self.home = folder / leftovers.home_name(self.token)
        self.socket = self.home / "cri.sock"  # a path: CRI and containerd's own API answer on the same one
        self.nri_socket = self.home / "nri.sock"  # of a containerd that knows NRI, as `cdi` of one that knows CDI
        self.cdi = self.home / "cdi"
        self.registries = self.home / "certs.d"  # HOST:PORT/hosts.toml says how a registry is spoken to
        self.log = self.home / "containerd.log"
        self.cgroups = Ledger(self.token)  # .make(path), .own(path): cgroups that go with this bed
        self.removed_at_start: list[str] = []  # leftovers of stale beds, in words
        self._snapshotter = snapshotter
        self._cni_bin_dir = cni_bin_dir or self.home / "cni" / "bin"
        self._cni_conf_dir = cni_conf_dir or self.home / "cni" / "net.d"
        self._cri_options = dict(cri_options or {})
        self._runtimes = dict(runtimes or {})
        self._path = ":".join([*([str(programs)] if programs else []), os.environ.get("PATH", "") + SYSTEM_PATH])
        self._prefix = list(prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self._cri: Cri | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def snapshotter(self) -> str:
        if self._snapshotter is None:
            self._snapshotter = choose_snapshotter(self.home)
        return self._snapshotter

    @property
    def cri(self) -> Cri:
        """The bed's own CRI client (blocking calls)."""
        if self._cri is None:
            self._cri = Cri(self.socket)
        return self._cri

    def start(self) -> None:
        """Remove what stale beds left, start, wait until the CRI answers, import the sandbox image.

        Raises BedError when it ends or stays mute; what it had made is removed then.
        """
        if len(str(self.socket)) > SOCKET_LENGTH:
            raise BedError(f"{self.socket} is too long for a socket (over {SOCKET_LENGTH}): give a shorter folder")
        self.removed_at_start = leftovers.remove_stale()
        for line in self.removed_at_start:
            print(f"left by a killed test bed, removed: {line}", flush=True)
        try:
            self._launch()
            self._await_cri()
            self.import_image(images.sandbox_image(self.home / "sandbox.tar"), images.SANDBOX)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End pods, containerd and shims, then remove mounts, cgroups and files. Safe twice, and after a failure."""
        deadline = time.monotonic() + PATIENCE
        try:
            if self._process is not None and self._process.poll() is None:
                self._end_pods(deadline)
                self._process.terminate()
                self._process.wait(timeout=max(1.0, deadline - time.monotonic()))
        except (CriError, subprocess.TimeoutExpired):
            pass  # the sweep below does not ask containerd
        finally:
            if self._cri is not None:
                self._cri.close()
                self._cri = None
            leftovers.remove_bed(self.token, home=self.home)
            if self._process is not None:
                self._process.wait()
                self._process = None

    def kill(self) -> None:
        """End containerd as a crash does, and nothing else: its shims and containers live on."""
        self._running().kill()
        self._running().wait()

    def start_again(self) -> None:
        """Start it after `kill`, on all that it had; returns when the CRI answers. Raises BedError."""
        self._spawn()
        self._await_cri()

    def import_image(self, tar: Path, name: str) -> None:
        """Load an image archive (docker-archive or OCI, as made by `images` or buildah) which holds `name`.

        Returns when the CRI knows it. Raises BedError when the archive does not hold that name.
        """
        self.ctr("images", "import", "--snapshotter", self.snapshotter, str(tar))
        held = self.ctr("images", "list", "--quiet").split()
        if name not in held:
            raise BedError(f"{tar} was imported, but has no image {name}; there are {held}")
        deadline = time.monotonic() + PATIENCE
        while not self.cri.image_present(name):  # the CRI plugin learns of it by an event
            if time.monotonic() > deadline:
                raise BedError(f"the CRI does not learn of image {name}: {self._log_tail()}")
            time.sleep(0.02)

    def ctr(self, *arguments: str) -> str:
        """Run containerd's own client in the CRI's namespace; its standard output. Raises BedError with stderr."""
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment())
        if done.returncode:
            raise BedError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def _launch(self) -> None:
        self.home.mkdir(parents=True)
        for folder in (self._cni_bin_dir, self._cni_conf_dir, self.cdi):
            folder.mkdir(parents=True, exist_ok=True)
        self._spawn()

    def _spawn(self) -> None:
        config = self.home / "config.toml"
        config.write_text(self._config())
        procs = self.cgroups.open() / "cgroup.procs"
        # It enters its cgroup by itself, before it is containerd: no moment in which a killed test would lose it.
        shell = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(procs)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*shell, *self._prefix, "containerd", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for the tests, which then stop us in order
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": self._path}

    def _config(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        return "\n".join(
            [
                "version = 2",
                *_lines(root=str(self.home / "root"), state=str(self.home / "state")),
                f"disabled_plugins = {json.dumps([f'io.containerd.snapshotter.v1.{name}' for name in UNUSED])}",
                "[grpc]",
                *_lines(address=str(self.socket)),
                '[plugins."io.containerd.internal.v1.opt"]',
                *_lines(path=str(self.home / "opt")),
                '[plugins."io.containerd.nri.v1.nri"]',
                *_lines(disable=False, socket_path=str(self.nri_socket)),
                *_lines(plugin_path=str(self.home / "nri"), plugin_config_path=str(self.home / "nri")),
                f"[{cri}]",
                *_lines(**{**CRI_OPTIONS, **self._cri_options}, cdi_spec_dirs=[str(self.cdi)]),
                f"[{cri}.registry]",
                *_lines(config_path=str(self.registries)),
                f"[{cri}.containerd]",
                *_lines(snapshotter=self.snapshotter, default_runtime_name="runc"),
                *self._runtime(cri, "runc"),
                *(line for name, file in self._runtimes.items() for line in self._runtime(cri, name, file)),
                f"[{cri}.cni]",
                *_lines(bin_dir=str(self._cni_bin_dir), conf_dir=str(self._cni_conf_dir)),
                "",
            ]
        )

    def _runtime(self, cri: str, handler: str, program: Path = Path("runc")) -> list[str]:
        return [
            f"[{cri}.containerd.runtimes.{handler}]",
            *_lines(runtime_type="io.containerd.runc.v2"),
            f"[{cri}.containerd.runtimes.{handler}.options]",
            *_lines(BinaryName=str(program), Root=str(self.home / "runc"), SystemdCgroup=False),
        ]

    def _await_cri(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            if self._running().poll() is not None:
                raise BedError(f"containerd ended with {self._running().returncode}: {self._log_tail()}")
            try:
                self.cri.version()
            except CriError as error:
                if time.monotonic() > deadline:
                    raise BedError(f"containerd does not answer ({error}): {self._log_tail()}") from error
                time.sleep(0.02)
            else:
                return

    def _end_pods(self, deadline: float) -> None:
        for sandbox in self.cri.list_pod_sandboxes():
            if time.monotonic() > deadline:
                return
            self.cri.stop_pod_sandbox(sandbox.id)
            self.cri.remove_pod_sandbox(sandbox.id)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BedError("containerd was not started")
        return self._process

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def choose_snapshotter(folder: Path) -> str:
    """Give "overlayfs" where an overlay can really be mounted in this folder, else "native" (which copies)."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / "overlay-trial"
    parts = {name: trial / name for name in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir(parents=True)
    options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"])]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(parts["merged"])], check=True)
    shutil.rmtree(trial)
    return "native" if done.returncode else "overlayfs"


def _lines(**keys: str | int | bool | list[str]) -> list[str]:
    """TOML `key = value`; JSON's strings, numbers, booleans and lists of them are TOML's too."""
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
