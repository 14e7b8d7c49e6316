"""A bed for a person: `PYTHONPATH=tests python -m cluster` starts one, which runs until Ctrl-C or `--stop`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from cluster import leftovers, requirements
from cluster.bed import WORKLOAD, Bed
from cluster.build import BuildError, program
from cluster.processes import StartError
from containers.cgroupfs import owner_lives
from patience import PATIENCE

TRY = """
The cluster runs. Ctrl-C here, or the same command with --stop elsewhere, ends it and removes all of it.

  export KUBECONFIG={kubeconfig} PATH={tools}:{helm}:$PATH

  kubectl get nodes,pods -A -o wide
"""
TRY_NODE = """\
  kubectl describe node gpu-node                   # nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb
  kubectl run one --image={workload} --overrides='{{"spec": {{"containers": [{{"name": "one",
    "image": "{workload}", "resources": {{"limits": {{"nvidia.com/gpu": 1}}}}}}]}}}}'
  kubectl wait --for=condition=Ready pod/one
  kubectl exec one -- env | grep NVIDIA            # what the device plugin gave it

  # two time-slicing pods that share GPU 1: they hold 3 GiB and 5 GiB
{two}
{three}
  kubectl wait --for=condition=Ready pod/two pod/three

  # install gpusteward (docs/test-cluster.md): `make image` prints the ARCHIVE
  ctr --address {socket} -n k8s.io images import ARCHIVE

  # where a page says "on the node": its folders are in a mount namespace of their own
  {inside} ls /var/lib/gpusteward

  kubelet's files: {folder}/kubelet      fake driver's state: {folder}/driver (tests/driver/README.md)
"""
TRY_SHARED = """\
  kubectl run {name} --image={workload} --overrides='{{"spec": {{"containers": [{{"name": "{name}",
    "image": "{workload}", "command": ["/bin/workload"],
    "env": [{{"name": "WORKLOAD", "value": "alloc visible {gib}GiB compute sm=20"}}],
    "resources": {{"limits": {{"nvidia.com/gpu.shared": 1}}}}}}]}}}}'"""
LOGS = "  logs: {folder}/logs      audit log: {folder}/audit.log"


def main() -> int:
    """Start, or stop; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument(
        "--stop",
        action="store_true",
        help="stop the cluster that KUBECONFIG names, or else all that this command started here, not those of tests",
    )
    parser.add_argument("--no-node", action="store_true", help="the API server alone: starts in seconds, wants no root")
    parser.add_argument("--port", type=int, help="of the API server; default: a free one")
    options = parser.parse_args()
    try:
        return _stop() if options.stop else _run(node=not options.no_node, port=options.port)
    except (StartError, BuildError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(*, node: bool, port: int | None) -> int:
    if problems := requirements.missing(node=node):
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    # Both said: a shell that starts this in the background leaves SIGINT ignored. --stop sends SIGTERM.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    began = time.monotonic()
    bed = Bed(node=node, port=port, by_hand=True)
    try:
        bed.start()
        words = {
            "kubeconfig": bed.kubeconfig,
            "tools": program("kubectl").parent,
            "helm": program("helm").parent,
            "socket": bed.node.containerd.socket if node and bed.node.containerd else "",
            "workload": WORKLOAD,
            "inside": " ".join(bed.node.inside) if node else "",
            "folder": bed.folder,
        }
        for name, gib in (("two", 3), ("three", 5)):
            words[name] = TRY_SHARED.format(name=name, gib=gib, workload=WORKLOAD)
        print(f"started in {time.monotonic() - began:.0f} s")
        print((TRY + (TRY_NODE if node else "") + LOGS).format(**words), flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("stopping ...", flush=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for line in bed.stop():
            print(f"removed: {line}")
    return 0


def _stop() -> int:
    running = [record for record in leftovers.records() if record.by_hand and owner_lives(record.token)]
    named = Path(os.environ.get("KUBECONFIG", "")).resolve()
    running = [record for record in running if Path(record.folder).resolve() in named.parents] or running
    for record in running:
        os.kill(int(record.token.partition("-")[0]), signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while any(record.file.exists() and owner_lives(record.token) for record in running):
        if time.monotonic() > deadline:
            print("still running: " + ", ".join(record.folder for record in running if Path(record.folder).exists()))
            return 1
        time.sleep(0.1)
    for line in leftovers.remove_stale():
        print(f"left by a killed test bed, removed: {line}")
    print(f"ended {len(running)}" if running else "none was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
