"""
The simulated node: a PCIe server with eight GPUs, and who works on it.

This is data, to be read and edited; `rows.py` says what each column means. A new line here is a new pod on the node
page. The times are made for a demo: `anna-notebook` passes its limit after a minute, the embedding job is made anew
after 25 s, the reranker after 75 s.
"""

from exporter.model import Sharing
from exporter.simulated.curves import Curve, course, cycle, steady
from exporter.simulated.rows import (
    GRAPHICS,
    MPS_CLIENT,
    ContainerRow,
    GpuRow,
    InstanceRow,
    Life,
    Model,
    PodRow,
    ProcessRow,
    XidRow,
    gpu,
    mig,
)

DRIVER = "570.124.06"  # one of those that print the id of a thread for some processes
UPTIME = 23 * 86_400.0  # seconds since boot, when the simulation begins
HOUR = 3600.0

CONSENTING = {"team-vision", "team-nlp"}
"""Namespaces whose administrators let the policy evict; those of `research` have not decided yet."""

#            name                      MiB  reserved   watts      MHz idle, boost, memory
H100 = Model("NVIDIA H100 PCIe", 81_559, 551, 48.0, 350.0, 345, 1755, 1593, gpm=True)
A100 = Model("NVIDIA A100 80GB PCIe", 81_920, 618, 44.0, 300.0, 210, 1410, 1512, gpm=False)

INSTANCES = (
    InstanceRow(2, "3g.40gb", 40_448, 3),
    InstanceRow(3, "2g.20gb", 20_096, 2),
    InstanceRow(9, "1g.10gb", 9_984, 1),
    InstanceRow(10, "1g.10gb", 9_984, 1),
)

# Managed memory: a data frame on GPU 5 that spills over now and then.
SPILL = cycle(180, (0, 0), (50, 0), (65, 3.2), (120, 3.2), (140, 0))

GPUS = (
    GpuRow(H100, "00000000:17:00.0", Sharing.EXCLUSIVE),
    GpuRow(H100, "00000000:2A:00.0", Sharing.EXCLUSIVE, inlet=34),  # behind the first: warm air
    GpuRow(H100, "00000000:3D:00.0", Sharing.MIG, instances=INSTANCES),
    GpuRow(H100, "00000000:50:00.0", Sharing.TIME_SLICING, replicas=4),
    GpuRow(A100, "00000000:97:00.0", Sharing.MPS, replicas=8),
    GpuRow(A100, "00000000:AA:00.0", Sharing.EXCLUSIVE, managed=SPILL),
    GpuRow(A100, "00000000:BD:00.0", Sharing.EXCLUSIVE),
    GpuRow(A100, "00000000:D0:00.0", Sharing.EXCLUSIVE, ecc_corrected=3),
)

XIDS = (
    XidRow(3, 31, first=52, period=420),  # a cell of a notebook reads beyond its array
    XidRow(2, 43, first=137, period=1260, instance=9),
)

# Loads. Training: a checkpoint every minute and a half, and a stretch of larger batches that meets the power limit.
TRAINING = cycle(
    92, (0, 0.93), (20, 0.93), (24, 0.99), (68, 0.99), (72, 0.93), (82, 0.93), (83, 0.06), (89, 0.06), (92, 0.93)
)
LOADER = cycle(40, (0, 0.55), (12, 0.8), (25, 0.8), (34, 0.5), (40, 0.55))  # waits for its data
CELLS = cycle(75, (0, 0), (18, 0), (19, 0.22), (36, 0.2), (37, 0))  # a notebook: a cell runs now and then
QUERIES = cycle(50, (0, 0.15), (28, 0.15), (29, 0), (49, 0), (50, 0.15))  # another one
REQUESTS = cycle(120, (0, 0.1), (45, 0.2), (60, 0.24), (90, 0.15), (120, 0.1))  # an inference server
STREAM = cycle(30, (0, 0.6), (15, 0.7), (30, 0.6))  # 25 pictures a second, all day

# Memory of anna-notebook-0: calm, grows past 16 GiB after a minute, stays for two and a half, comes back.
GROWS = cycle(240, (0, 9.5), (40, 9.5), (75, 22), (222, 22), (232, 9.5), (240, 9.5))

EMBEDDING_JOB = Life(period=210, first=25, running=4, deleted=190, gone=194)
RERANKER = Life(period=300, first=75, running=6, deleted=292, gone=322)

LIMIT_16 = (("nvidia.com/container.notebook.gpu-memory.limit", "16Gi"),)
LIMIT_24 = (("nvidia.com/container.notebook.gpu-memory.limit", "24Gi"),)


def notebook(namespace: str, who: str, limit: tuple[tuple[str, str], ...], *kernels: ProcessRow) -> PodRow:
    """Return a Kubeflow notebook on the time-sliced GPU, each kernel being one process."""
    return PodRow(
        namespace,
        f"{who}-notebook-0",
        (ContainerRow("notebook", (gpu(3),), kernels), ContainerRow("istio-proxy")),
        kind="Notebook",
        workload=f"{who}-notebook",
        queue="interactive",
        age=9 * HOUR,
        annotations=limit,
    )


def embedder(suffix: str, pid: int, memory: Curve) -> PodRow:
    """Return one replica of the embedding server, a client of MPS."""
    worker = ProcessRow(pid, gpu(4), memory, REQUESTS, MPS_CLIENT, breath=128)
    return PodRow(
        "platform",
        f"embedder-7c9d8b6f5d-{suffix}",
        (ContainerRow("server", (gpu(4),), (worker,)),),
        kind="Deployment",
        workload="embedder",
        priority_class="serving",
        age=52 * HOUR,
    )


PODS = (
    # GPUs 0 and 1: one pod that trains on both.
    PodRow(
        "team-nlp",
        "llama-sft-worker-0",
        (
            ContainerRow(
                "pytorch",
                (gpu(0), gpu(1)),
                (
                    ProcessRow(48213, gpu(0), course((0, 58), (25, 68.5)), TRAINING, breath=384),
                    ProcessRow(48214, gpu(1), course((0, 58), (25, 67.8)), TRAINING, breath=384),
                ),
            ),
            ContainerRow("log-shipper"),
        ),
        kind="PyTorchJob",
        workload="llama-sft",
        queue="nlp-training",
        priority_class="training-high",
        age=6 * HOUR,
    ),
    # GPU 2, MIG: two containers of one pod on two instances, a StatefulSet, a Job, and each instance its own.
    PodRow(
        "research",
        "protein-fold-0",
        (ContainerRow("fold", (mig(2, 2),), (ProcessRow(71550, mig(2, 2), steady(27.4), TRAINING, breath=256),)),),
        kind="StatefulSet",
        workload="protein-fold",
        queue="research-batch",
        priority_class="training-low",
        age=30 * HOUR,
    ),
    PodRow(
        "team-vision",
        "traffic-cam-6d5f9c7b84-h2v9q",
        (
            ContainerRow("detector", (mig(2, 3),), (ProcessRow(66104, mig(2, 3), steady(11.6), STREAM),)),
            ContainerRow("tracker", (mig(2, 9),), (ProcessRow(66231, mig(2, 9), steady(4.1), STREAM, breath=16),)),
            ContainerRow("mqtt-bridge"),
        ),
        kind="Deployment",
        workload="traffic-cam",
        priority_class="serving",
        age=200 * HOUR,
    ),
    PodRow(
        "research",
        "embed-docs-*",
        (
            ContainerRow(
                "embed",
                (mig(2, 10),),
                (
                    ProcessRow(
                        1_200_000,
                        mig(2, 10),
                        course((0, 0), (8, 0), (9, 0.6), (30, 7.2)),
                        course((0, 0), (20, 0), (30, 0.85), (184, 0.85), (188, 0)),
                    ),
                ),
            ),
        ),
        kind="Job",
        workload="embed-docs",
        queue="research-batch",
        life=EMBEDDING_JOB,
    ),
    # GPU 3, time-sliced by four: notebooks, of which one grows beyond what it declared.
    notebook("team-vision", "anna", LIMIT_16, ProcessRow(90112, gpu(3), GROWS, CELLS)),
    notebook("team-vision", "ben", LIMIT_24, ProcessRow(90377, gpu(3), steady(19.2), QUERIES)),
    notebook(
        "research",
        "chen",
        LIMIT_24,
        ProcessRow(91820, gpu(3), steady(11.5), steady(0.3)),
        ProcessRow(93044, gpu(3), steady(6.8)),  # a kernel that somebody forgot
    ),
    notebook("research", "dora", LIMIT_16, ProcessRow(95501, gpu(3), course((0, 11), (30, 14.8)), steady(0.25))),
    # GPU 4, MPS: inference, the server of MPS itself, and a StatefulSet whose pod is made anew under the same name.
    embedder("x2k4p", 61022, steady(9.4)),
    embedder("m8wzd", 61187, steady(9.4)),
    embedder("t5c7j", 62930, course((0, 6), (45, 10.1))),
    PodRow(
        "platform",
        "reranker-0",
        (
            ContainerRow(
                "server",
                (gpu(4),),
                (
                    ProcessRow(
                        2_400_000,
                        gpu(4),
                        course((0, 0), (10, 0), (11, 0.5), (40, 13.5)),
                        course((0, 0), (40, 0), (50, 0.2), (285, 0.2), (292, 0)),
                        MPS_CLIENT,
                    ),
                ),
                replicas=2,
            ),
        ),
        kind="StatefulSet",
        workload="reranker",
        priority_class="serving",
        life=RERANKER,
    ),
    PodRow(
        "gpu-operator",
        "nvidia-device-plugin-mps-control-daemon-7h2rk",
        (ContainerRow("mps-control-daemon-ctr", (), (ProcessRow(5120, gpu(4), steady(0.03), breath=0),)),),
        kind="DaemonSet",
        workload="nvidia-device-plugin-mps-control-daemon",
        priority_class="system-node-critical",
        age=UPTIME - HOUR,
    ),
    # GPU 5: a training whose first process dies while its DataLoader workers keep its memory; another process is
    # printed by the number of its thread.
    PodRow(
        "team-vision",
        "segmentation-train-0",
        (
            ContainerRow(
                "train",
                (gpu(5),),
                (
                    ProcessRow(83410, gpu(5), steady(6.4), breath=0, zombie_after=40),
                    ProcessRow(83977, gpu(5), steady(41.0), LOADER, breath=256, decoder=0.35, thread=83992),
                ),
            ),
        ),
        kind="StatefulSet",
        workload="segmentation-train",
        queue="vision-training",
        priority_class="training-low",
        age=3 * HOUR,
    ),
    # GPU 6: allocated, and nobody uses it. A bare pod.
    PodRow("research", "erik-debug", (ContainerRow("shell", (gpu(6),)),), age=70 * HOUR),
    # GPU 7: nobody was given it, but a static pod looks whether it works.
    PodRow(
        "kube-system",
        "gpu-canary-gpu-a01",
        (ContainerRow("canary", (), (ProcessRow(3344, gpu(7), steady(0.45), steady(0.02), breath=0),)),),
        kind="Node",
        workload="gpu-a01",
        priority_class="system-node-critical",
        age=UPTIME - HOUR,
        static=True,
    ),
)

# Outside of any container: a display server.
HOST = (ProcessRow(2817, gpu(7), steady(0.044), kinds=GRAPHICS, breath=0),)

# Listed by the driver, dead, and of a container that is long gone.
GHOSTS = (ProcessRow(39127, gpu(7), steady(5.2), breath=0),)
