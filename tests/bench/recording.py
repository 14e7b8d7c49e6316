"""
What recording costs: bytes and milliseconds a round. Figures, no verdict.

    PYTHONPATH=tests python -m bench.recording

In: nothing. Out: a table in Markdown. Law: the answers are made up, in the size of a node with 8 GPUs of 32 processes,
four to a container, and 110 pods. A *steady* node's processes stay and keep their memory while their load varies. On a
*busy* node every process changes its memory in every round, and one in a hundred is replaced.
"""

import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from builders import GIB, MIB, gpu, leaf, memory
from exporter.limits.loading import builtin
from exporter.model import (
    Allocation,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    GpuProcess,
    GpuSample,
    Health,
    HostProcess,
    HostSample,
    Inventory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
    ProcessUtilization,
    Utilization,
)
from exporter.recording import FORMAT, Header, HostRead, RecordedRound, Writing
from exporter.recording.anonymizing import Pseudonyms
from exporter.recording.keeping import Keeping
from recordings import rounds

GPUS, PROCESSES, PER_CONTAINER, PODS = 8, 32, 4, 110
ROUNDS = 200


def node(seed: int) -> Inventory:
    """Make the names: 110 pods with a container each, the first 64 of which use GPUs."""
    lot = random.Random(seed)
    pods, containers, declared, allocations = {}, [], {}, []
    for number in range(PODS):
        uid = PodUid(str(uuid.UUID(int=lot.getrandbits(128))))
        labels = {"app.kubernetes.io/name": f"train-{number}", "pod-template-hash": f"{lot.getrandbits(40):x}"}
        pods[uid] = Pod(uid, f"team-{number % 7}", f"train-{number}-0", "Job", f"train-{number}", labels=labels)
        containers.append(Container(uid, "main", ContainerId(f"{lot.getrandbits(256):064x}")))
        made = DeclaredContainer("main", {"nvidia.com/gpu": "1", "memory": "16Gi", "cpu": "4"})
        declared[uid] = DeclaredPod(uid, pods[uid].namespace, pods[uid].name, labels, {}, (made,))
        if number < GPUS * PROCESSES // PER_CONTAINER:
            where = leaf(number * PER_CONTAINER // PROCESSES)
            allocations.append(Allocation(pods[uid].namespace, pods[uid].name, "main", "nvidia.com/gpu", where))
    return Inventory(pods, tuple(containers), tuple(allocations), declared=declared, known=True, live=True)


def played(names: Inventory, *, busy: bool) -> Iterator[RecordedRound]:
    """Play the rounds of a node."""
    lot = random.Random(1)
    pids = [[10_000 + 1000 * index + one for one in range(PROCESSES)] for index in range(GPUS)]
    held = {pid: lot.randrange(100, 2000) * 2 * MIB for listed in pids for pid in listed}
    for number in range(1, ROUNDS + 1):
        samples, hosts = [], []
        for index, listed in enumerate(pids):
            for place, pid in enumerate(listed if busy else ()):
                held[pid] = max(2 * MIB, held[pid] + lot.randrange(-8, 9) * 2 * MIB)
                if lot.random() < 0.01:
                    listed[place] = lot.randrange(100_000, 999_999)
                    held[listed[place]] = held[pid]
            owners = [
                Owner(((one.pod_uid, one.id),))
                for one in names.containers[index * 8 : index * 8 + 8]
                for _ in range(PER_CONTAINER)
            ]
            kinds = frozenset({ProcessKind.COMPUTE})
            lists = tuple(GpuProcess(leaf(index), pid, kinds, held[pid]) for pid in listed)
            load = tuple(ProcessUtilization(pid, lot.randrange(100) / 100, 0.1, 0.0, 0.0) for pid in listed)
            free = 80 * GIB - sum(held[pid] for pid in listed)
            health = Health(lot.random() * 700, number * 1e3, 61.0, {"sm": 1.98e9, "memory": 2.6e9}, {}, {})
            whole = gpu(index, memory=memory(used=free), utilization=Utilization(lot.random(), 0.3), health=health)
            samples.append(GpuSample(whole, 1e9 + 5 * number, lists, load))
            known = {p: HostProcess(ProcessKey(p, 7 * p), True, owner) for p, owner in zip(listed, owners, strict=True)}
            hosts.append(HostRead(frozenset(listed), HostSample(known, pid_domain_proven=True)))
        present = {sample.gpu.uuid: sample.gpu.index for sample in samples}
        yield RecordedRound(
            number,
            1e9 + 5 * number,
            5.0 * number,
            0.02,
            None,
            present,
            tuple(samples),
            hosts=tuple(hosts),
            inventory=node(0),  # a new object each time, as the sources make one
        )


def main() -> None:
    """Measure, and print the table."""
    names, keeping = node(0), Keeping.of(builtin())
    other = Pseudonyms(os.urandom(32), keeping)
    header = Header(gpusteward_recording=FORMAT, program="", node="n", started_at=0.0, interval=5.0)
    print("| node | file | first round | each later round | a day at 5 s | writing a round | reading it |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for busy in (False, True):
            given = list(played(names, busy=busy))
            for name, anonymous in (("plain", False), ("plain.gz", False), ("anonymized.gz", True)):
                path = Path(folder) / f"{busy}-{name}"
                inventory = other.inventory if anonymous else keeping.inventory
                host = other.host if anonymous else lambda one: one
                with Writing(path, header, inventory=inventory, host=host) as file:
                    file.add(given[0])
                    first, began = file.size, time.process_time()
                    for one in given[1:]:
                        file.add(one)
                    wrote = (time.process_time() - began) / (ROUNDS - 1)
                each = (path.stat().st_size - first) / (ROUNDS - 1)
                began = time.process_time()
                assert sum(1 for _ in rounds(path)) == ROUNDS
                read = (time.process_time() - began) / ROUNDS
                print(
                    f"| {'busy' if busy else 'steady'} | {name} | {first / 1000:.0f} kB | {each / 1000:.1f} kB | "
                    f"{each * 17.28 / 1000:.0f} MB | {1000 * wrote:.1f} ms | {1000 * read:.1f} ms |"
                )


if __name__ == "__main__":
    main()
