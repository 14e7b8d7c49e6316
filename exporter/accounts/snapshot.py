"""
The one place where a `Snapshot` is made.

What comes in: the answers of all sources in one round, with the accounts and limits made from them. What goes out: the
`Snapshot`.

The rule: names are for display only. Everything is joined by pod UID, container id and device. Two pods may share a
name while the old one terminates and the new one starts, so no join uses it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from exporter.accounts.accounting import GpuAccounts
from exporter.accounts.sharing import newest_by_name, pods_on, sharing_of
from exporter.limits.claimed import claim_usages
from exporter.limits.devices import leaf_devices
from exporter.model import (
    Attribution,
    Device,
    DeviceAccount,
    DeviceKey,
    Fault,
    GpuInstance,
    GpuUuid,
    HostSample,
    Inventory,
    Limit,
    Sharing,
    Snapshot,
    Subject,
    XidCounts,
    summands,
)

Holders = Mapping[DeviceKey, frozenset[Subject]]
"""The containers to which each device was allocated."""

_UNDIVIDED = GpuInstance(0, "", ())


def holders(inventory: Inventory) -> Holders:
    """Name the containers to which each device was allocated, used or not."""
    newest = newest_by_name(inventory)
    containers = {(container.pod_uid, container.name): container for container in inventory.containers}
    by_device: dict[DeviceKey, set[Subject]] = defaultdict(set)
    for allocation in inventory.allocations:
        meant = newest.get((allocation.namespace, allocation.pod))
        container = containers.get((meant.uid, allocation.container)) if meant else None
        if container is not None:
            by_device[allocation.device].add(Subject(container.pod_uid, container.name, container.id))
    return {device: frozenset(subjects) for device, subjects in by_device.items()}


def make_snapshot(
    *,
    number: int,
    node: str,
    taken_at: float,
    monotonic: float,
    gpus_present: Mapping[GpuUuid, int],
    gpus_read: Collection[GpuUuid],
    accounts: Mapping[GpuUuid, GpuAccounts],
    hosts: Collection[HostSample],
    inventory: Inventory,
    limits: tuple[Limit, ...],
    memory_declared: Mapping[DeviceKey, int],
    xid_errors: XidCounts,
    by_time: bool = True,
    devices_up: Mapping[str, bool],
    faults: Iterable[Fault],
) -> Snapshot:
    """
    Join one round.

    Args: as the attributes of `Snapshot`, and
        accounts: of the GPUs that were read in this round, and the last ones of the other GPUs.
        hosts: the kernel's answers about the processes of each of these GPUs.
        inventory: names and allocations.
        devices_up: whether each device source answered, by name.
        faults: those of the daemon and of the devices as a whole; hosts, inventory and accounts have their own.
    """
    ordered = sorted(accounts.values(), key=lambda gpu_accounts: gpu_accounts.sample.gpu.index)
    fresh = [accounts[uuid] for uuid in gpus_read if uuid in accounts]
    gpus = tuple(gpu_accounts.sample.gpu for gpu_accounts in accounts.values())
    usages = tuple(usage for gpu_accounts in ordered for usage in gpu_accounts.usages)
    pods = pods_on(inventory, usages, limits)
    processes = Counter(dict.fromkeys(Attribution, 0))
    for gpu_accounts in ordered:
        processes.update(gpu_accounts.processes)
    proven = all(host.pid_domain_proven for host in hosts)
    return Snapshot(
        round=number,
        taken_at=taken_at,
        monotonic=monotonic,
        node=node,
        gpus_present=gpus_present,
        gpus_read=frozenset(gpus_read),
        gpus=gpus,
        devices=tuple(device for gpu_accounts in ordered for device in _devices(gpu_accounts, inventory, pods)),
        usages=usages,
        pods=inventory.pods,
        containers=inventory.containers,
        namespaces=inventory.namespaces,
        claims=inventory.claims,
        claim_usages=claim_usages(inventory.declared, inventory.claims, usages, leaf_devices(gpus, inventory.sharing)),
        allocations=inventory.allocations,
        limits=limits,
        memory_declared=memory_declared,
        processes=dict(processes),
        utilization_dropped=sum(gpu_accounts.sample.dropped_utilization for gpu_accounts in fresh),
        utilization_capped=sum(gpu_accounts.capped for gpu_accounts in fresh),
        sources_up={**devices_up, "host": proven, "names": inventory.live},
        pid_domain_proven=proven,
        names_live=inventory.live,
        xid_errors=xid_errors,
        by_time=by_time,
        faults=(
            *dict.fromkeys((*faults, *(fault for host in hosts for fault in host.faults))),
            *inventory.faults,
            *(fault for gpu_accounts in ordered for fault in _faults(gpu_accounts)),
        ),
    )


def _devices(accounts: GpuAccounts, inventory: Inventory, pods: Mapping[DeviceKey, int]) -> Iterator[Device]:
    """Make the `Device`s of a GPU. `pods` counts the pods on each device."""
    sample, gpu = accounts.sample, accounts.sample.gpu
    instances: dict[int | None, GpuInstance] = {instance.id: instance for instance in gpu.instances}
    utilization = {key: ratios for key, _, ratios in gpu.leaves()}
    default_sharing = Sharing.MIG if gpu.mig else Sharing.NONE
    # Each container to which a device was allocated has a usage there, of 0 bytes at least: see accounting.
    counted = accounts.attributed.placed is not None and not accounts.processes.get(Attribution.UNPROVEN)
    containers = Counter(usage.device for usage in summands(accounts.usages))
    for account in accounts.accounts:
        instance = instances.get(account.device.gpu_instance, _UNDIVIDED)
        handed_out, replicas = inventory.sharing.get(account.device, (default_sharing, 1))
        yield Device(
            account.device,
            gpu,
            account,
            utilization[account.device],
            sample.sampled_at,
            sharing_of(handed_out, pods.get(account.device, 0)),
            replicas,
            instance.profile,
            instance.mig_uuids,
            containers=containers[account.device] if counted else None,
            pods=pods.get(account.device, 0),
        )


def _faults(accounts: GpuAccounts) -> Iterator[Fault]:
    yield from accounts.sample.faults
    for account in accounts.accounts:
        if not account.closes:
            yield _not_closing(account)


def _not_closing(account: DeviceAccount) -> Fault:
    instance = "" if account.device.gpu_instance is None else f"/{account.device.gpu_instance}"
    used = "unknown" if account.memory is None else f"{account.memory.used} bytes"
    return Fault(
        "accounts",
        "accounts_do_not_close",
        f"the process lists of this device hold more than its used memory ({used}); "
        "another read in between, or a driver whose figures contradict one another",
        subject=f"{account.device.uuid}{instance}",
    )
