"""
The preflight: asks each source of the daemon once.

What comes in: the command line. What goes out: judged lines, in a fixed order. No fault of the node raises an
exception.

The rule: it uses the daemon's own code and asks all sources at once. It waits for each as long as the daemon does; for
files of the host longer. A source that the config does not use is not asked. Nothing stays open: each socket and each
driver is closed.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import aiohttp

from exporter.base.cgroup_owner import PodCgroups
from exporter.check import cluster, node, settings
from exporter.check.lines import Failed, Line
from exporter.check.node import CgroupView, PidDomain
from exporter.check.settings import Address
from exporter.config import Arguments, Check, Config, ConfigError, load, source_of_names, switched_off
from exporter.config.values import ListenAddress
from exporter.devices import DeviceError, DevicesSample
from exporter.devices.finding import Finder
from exporter.devices.kernel import Roots
from exporter.host.pid_domain import unproven
from exporter.host.pod_cgroups import pod_cgroups
from exporter.host.procfs import ProcFs, proc_root
from exporter.kube.file import FileInventory
from exporter.kube.remembered import links_below, read
from exporter.kube.rights import Right
from exporter.recording.player import RecordedNode
from exporter.web.config import load_security
from exporter.web.listening import WebError, listen

T = TypeVar("T")

DEADLINE = 15.0
"""
Seconds for files of the host.

What hangs never answers, and what is only busy must not be called broken: on a machine with two cores under full load,
a walk over `/proc` took more than 5 s.
"""
DRIVER_DEADLINE = 15.0
"""Seconds for all of the driver's calls together."""
SERVER_DEADLINE = 5.0
"""Seconds for the server that has our address already."""
INITIAL_CGROUP = "cgroup:[4026531835]"
"""The kernel's constant for the initial cgroup namespace, PROC_CGROUP_INIT_INO of include/linux/proc_ns.h."""
OWN_PROC = Path("/proc")


async def preflight(
    arguments: Arguments,
    *,
    in_a_pod: bool,
    also: Check = lambda _: (),
    more: Callable[[Config], Sequence[Right]] = lambda _: (),
    beyond: Callable[[Config], Awaitable[tuple[Line, ...]]] | None = None,
) -> tuple[Line, ...]:
    """
    Ask and judge all sources that these arguments need.

    Args:
        arguments: the daemon's.
        in_a_pod: Kubernetes has given this process the address of its API.
        also: finds impossible values of a config that this package does not know.
        more: the rights that a config's mode needs besides the exporter's.
        beyond: asks and judges the needs of a config that this package does not know.

    """
    try:
        config = load(arguments, also)
    except ConfigError as error:
        return (settings.refused_config(error.reason, error.fix),)
    played = config.devices == "simulated" or config.devices.recording is not None
    parts = [_web(config)] if played else [_host(config), _names(config, in_a_pod, more(config)), _web(config)]
    driver, *others = await asyncio.gather(_driver(config), *parts)
    file = str(arguments.config_file) if arguments.config_file else None
    wanted = await beyond(config) if beyond else ()
    return (settings.config(file), *driver, *(line for part in others for line in part), *wanted)


async def _driver(config: Config) -> tuple[Line, ...]:
    if (recording := config.devices.recording) is not None:
        return (node.recording(await in_thread(lambda: _recorded(recording), f"reading {recording}")),)
    devices = None if config.devices == "simulated" else await _devices(config)
    return (node.driver(devices), *node.vendors(devices))


def _recorded(file: Path) -> str:
    played = RecordedNode(file, time.time, time.monotonic)
    played.let_go()
    return f"{file} plays, recorded on {played.node}"


async def _devices(config: Config) -> DevicesSample | Failed:
    root = config.node.host_root
    roots = Roots.below(root, proc_root(root))
    off = switched_off(config.collector)
    finder = Finder(roots, root, clock=time.time, monotonic=time.monotonic, off=off)
    try:
        async with asyncio.timeout(DRIVER_DEADLINE):
            source = await finder.open(config.devices.names)
            try:
                return await source.sample()
            finally:
                await source.close()
    except DeviceError as error:
        return Failed(error.reason, fix=error.fix)
    except TimeoutError:
        hung = "look for Xid errors in the kernel's log (dmesg); check that nvidia-smi answers on the node"
        return Failed(f"the drivers did not answer within {DRIVER_DEADLINE:g} s", fix=hung)


async def _host(config: Config) -> tuple[Line, ...]:
    root = proc_root(config.node.host_root)
    pods = pod_cgroups(config.node.pods_cgroup, config.node.host_root)
    domain, view = await asyncio.gather(
        in_thread(lambda: _pid_domain(root, trusted=config.node.trust_pid_namespace), f"reading {root}"),
        in_thread(lambda: _cgroups(root, pods), f"reading {root}"),
    )
    return node.pid_domain(domain), node.cgroups(view)


def _pid_domain(root: Path, *, trusted: bool) -> PidDomain:
    doubt = unproven(root, OWN_PROC, trusted=False)
    return PidDomain(str(root), doubt, unproven(root, OWN_PROC, trusted=trusted))


def _cgroups(root: Path, pods: PodCgroups) -> CgroupView | Failed:
    try:
        text = (root / "1/cgroup").read_text(errors="surrogateescape")
    except OSError as error:
        return Failed(
            f"cannot read {root / '1/cgroup'}: {error.strerror}", fix="mount the host's /proc, or set hostPID: true"
        )
    try:
        private = str((OWN_PROC / "self/ns/cgroup").readlink()) != INITIAL_CGROUP
    except OSError:
        private = None
    # Owners can be read in any PID namespace, so no proof of the PID domain is needed.
    sample = ProcFs(root, pods=pods, trusted=True).sample((), want_living=True)
    return CgroupView(text, private, sample.living or (), sample.faults, pods)


async def _names(config: Config, in_a_pod: bool, more: Sequence[Right]) -> tuple[Line, ...]:  # noqa: FBT001
    file = config.names.file
    match source_of_names(config.names, in_a_pod=in_a_pod):
        case "kubernetes":
            return await _kubernetes(config, more)
        case "file" if file is not None:
            inventory = await in_thread(lambda: FileInventory(file).inventory(), f"reading {file}")
            return (cluster.names(config.names.source, inventory),)
        case _:
            return (cluster.names(config.names.source, None),)


async def _kubernetes(config: Config, more: Sequence[Right]) -> tuple[Line, ...]:
    # Imported here, because the Kubernetes client takes 20 MB, which a node without Kubernetes should not pay.
    from exporter.check import probe_kube  # noqa: PLC0415

    folder = links_below(config.node.host_root)
    kubelet, api, links = await asyncio.gather(
        probe_kube.kubelet(config),
        probe_kube.api(config, _boot_id(), more),
        in_thread(lambda: len(read(folder)) if folder.is_dir() else None, f"reading {folder}"),
    )
    return (
        cluster.kubelet(kubelet),
        cluster.api_server(api.server),
        cluster.rights(api.rights),
        *([cluster.rights(api.more, config.policy.mode)] if more else ()),
        cluster.node_name(config.node.name, api.node),
        cluster.log_links(str(folder), links),
    )


async def _web(config: Config) -> tuple[Line, ...]:
    address, file = config.web.listen_address, config.web.config_file
    opened = await in_thread(lambda: _address(address), f"opening {address}")
    if isinstance(opened, Address) and opened.refused is not None:
        # Where a client certificate is required, only the probes answer this command.
        opened = replace(opened, served_by=await _served_by(config.web.probe_address or address))
    line = settings.web_address(opened)
    if file is None:
        return (line,)
    return line, settings.web_config(str(file), await in_thread(lambda: _security(file), f"reading {file}"))


def _address(address: ListenAddress) -> Address:
    try:
        listen(address).close()
    except WebError as error:
        return Address(address, error.reason, fix=error.fix)
    return Address(address)


async def _served_by(address: ListenAddress) -> str | None:
    """Ask which server answers there, with or without TLS: it may be the daemon itself, when it runs already."""
    host = address.host if address.host not in {"", "::", "0.0.0.0"} else "localhost"  # noqa: S104
    place = f"{f'[{host}]' if ':' in host else host}:{address.port}/healthz"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SERVER_DEADLINE)) as session:
        for scheme in ("http", "https"):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                # The certificate is not verified: no secret is sent, and only the server's name is read.
                async with session.get(f"{scheme}://{place}", ssl=False) as answer:
                    return answer.headers.get("Server")
    return None


def _security(file: Path) -> str:
    security = load_security(file)
    parts = {"TLS": security.tls, "basic authentication": security.users, "headers": security.headers}
    return ", ".join(name for name, part in parts.items() if part) or "no protection is configured"


def _boot_id() -> str:
    try:
        return (OWN_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


async def in_thread(work: Callable[[], T], what: str, deadline: float = DEADLINE) -> T | Failed:
    """
    Run work that may hang (a file system, a resolver) in a thread, and give up after `deadline` seconds.

    A wrong config or device source is returned as `Failed`; any other error is raised. The thread is a daemon thread,
    because the interpreter waits for an executor's threads before it ends.
    """
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()  # from now on a waiter that gives up cannot cancel it
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  (the waiter gets every error)
            future.set_exception(error)

    threading.Thread(target=run, name=what, daemon=True).start()
    try:
        async with asyncio.timeout(deadline):
            return await asyncio.wrap_future(future)
    except (ConfigError, DeviceError) as error:
        return Failed(error.reason, fix=error.fix)
    except TimeoutError:
        return Failed(
            f"{what} did not end within {deadline:g} s", fix="check that the file system or the server responds"
        )
