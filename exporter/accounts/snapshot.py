"""
One round's answers, joined into a snapshot.

What comes in: the accounts of each GPU, the inventory, the faults of all sources. What goes out: the `Snapshot`.

The law: names only display. Everything is joined by pod UID, container id and leaf device; a name that two generations
share (the old pod terminates while the new one starts) joins nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from exporter.accounts.accounting import GpuAccounts
from exporter.limits.claimed import claim_usages
from exporter.limits.facts import leaf_devices
from exporter.model import (
    Attribution,
    Device,
    DeviceAccount,
    DeviceKey,
    Fault,
    Gpu,
    GpuInstance,
    GpuUuid,
    Inventory,
    Pod,
    Sharing,
    Snapshot,
    Subject,
    Usage,
)

Holders = Mapping[DeviceKey, frozenset[Subject]]
"""Leaf device to the containers that it was handed to."""


def newest_by_name(inventory: Inventory) -> Mapping[tuple[str, str], Pod]:
    """
    Say whom the kubelet means, which names pods and not UIDs.

    Of two pods of one name it is the newest that is not terminating: the kubelet frees the devices of a pod before it
    hands them out again.
    """
    newest: dict[tuple[str, str], Pod] = {}
    for pod in inventory.pods.values():
        known = newest.get((pod.namespace, pod.name))
        if known is None or (not pod.terminating, pod.created_at) > (not known.terminating, known.created_at):
            newest[pod.namespace, pod.name] = pod
    return newest


def holders(inventory: Inventory) -> Holders:
    """Name who was handed which leaf device, used or not."""
    newest = newest_by_name(inventory)
    containers = {(container.pod_uid, container.name): container for container in inventory.containers}
    found: dict[DeviceKey, set[Subject]] = defaultdict(set)
    for allocation in inventory.allocations:
        meant = newest.get((allocation.namespace, allocation.pod))
        container = containers.get((meant.uid, allocation.container)) if meant else None
        if container is not None:
            found[allocation.device].add(Subject(container.pod_uid, container.name, container.id))
    return {device: frozenset(subjects) for device, subjects in found.items()}


def join(
    snapshot: Snapshot,
    accounts: Mapping[GpuUuid, GpuAccounts],
    inventory: Inventory,
    faults: Iterable[Fault],
) -> Snapshot:
    """Fill `snapshot` (its round, times, node and GPUs are set) with what the sources said."""
    devices: list[Device] = []
    usages: list[Usage] = []
    processes = dict.fromkeys(Attribution, 0)
    found = [*faults, *inventory.faults]
    for gpu_accounts in sorted(accounts.values(), key=lambda a: a.attributed.sample.gpu.index):
        sample = gpu_accounts.attributed.sample
        usages += gpu_accounts.usages
        found += sample.faults
        for attribution, count in gpu_accounts.processes.items():
            processes[attribution] += count
        instances = {instance.id: instance for instance in sample.gpu.instances}
        utilization = {key: ratios for key, _, ratios in sample.gpu.leaves()}
        # Who was handed a device has a usage there, be it of 0 bytes: see accounting.
        counted = gpu_accounts.attributed.placed is not None and not gpu_accounts.processes.get(Attribution.UNPROVEN)
        on_it = Counter(usage.device for usage in gpu_accounts.usages)
        for account in gpu_accounts.accounts:
            if not account.closes:
                found.append(_not_closing(account))
            instance = None if account.device.gpu_instance is None else instances[account.device.gpu_instance]
            sharing, replicas = inventory.sharing.get(account.device, (_default_sharing(sample.gpu), 1))
            devices.append(
                Device(
                    account.device,
                    sample.gpu,
                    account,
                    utilization[account.device],
                    sample.sampled_at,
                    sharing,
                    replicas,
                    *_mig(instance),
                    containers=on_it[account.device] if counted else None,
                )
            )
    fresh = [accounts[uuid] for uuid in snapshot.gpus_read if uuid in accounts]
    return Snapshot(
        round=snapshot.round,
        taken_at=snapshot.taken_at,
        monotonic=snapshot.monotonic,
        node=snapshot.node,
        gpus_present=snapshot.gpus_present,
        gpus_read=snapshot.gpus_read,
        sources_up=snapshot.sources_up,
        pid_domain_proven=snapshot.pid_domain_proven,
        gpus=tuple(a.attributed.sample.gpu for a in accounts.values()),
        devices=tuple(devices),
        usages=tuple(usages),
        pods=inventory.pods,
        containers=inventory.containers,
        namespaces=inventory.namespaces,
        claims=inventory.claims,
        claim_usages=claim_usages(
            inventory.declared,
            inventory.claims,
            usages,
            leaf_devices((one.attributed.sample.gpu for one in accounts.values()), inventory.sharing),
        ),
        allocations=inventory.allocations,
        processes=processes,
        utilization_dropped=sum(a.attributed.sample.dropped_utilization for a in fresh),
        utilization_capped=sum(a.capped for a in fresh),
        names_live=inventory.live,
        faults=tuple(found),
    )


def _mig(instance: GpuInstance | None) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if instance is None else (instance.profile, instance.mig_uuids)


def _default_sharing(gpu: Gpu) -> Sharing:
    return Sharing.MIG if gpu.mig else Sharing.NONE


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
