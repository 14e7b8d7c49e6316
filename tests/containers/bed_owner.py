"""A process that starts a bed with a pod, says on one line what it made, and waits to be killed (for test_bed.py)."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from containers.containerd import Containerd
from containers.pods import Bed


def main(folder: Path) -> None:
    containerd = Containerd(folder)
    containerd.start()
    pod = Bed(containerd).run_pod("team-a", "job", ["main"])
    told = {
        "token": containerd.token,
        "home": str(containerd.home),
        "containerd": containerd.pid,
        "pod_uid": pod.uid,
        "pid": pod.containers["main"].pid,
    }
    print(json.dumps(told), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
