"""
Vendors' libraries on real containers: real processes, namespaces and cgroups; the libraries are small C fakes.

Which container a number of such a library belongs to is found out by the same code as for NVIDIA's; here that is seen
with numbers that the kernel gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from containers.fixtures import RunPod
from containers.pods import Bed
from daemon.running import Daemon, until
from libraries.fake import FakeDevice, FakeLibrary, FakeProcess, GiB
from libraries.fixtures import libraries_build
from scraped import series

__all__ = ["libraries_build"]

pytestmark = pytest.mark.containers

NPU = "E0F4EE64-802061B1-6A691492-89528485-104301E3"
MLU = "00000000-0000-0000-0000-000012345678"


def held(page: str) -> dict[tuple[str, ...], float]:
    """Read who holds what of which vendor's device."""
    vendors = {uuid: vendor for vendor, uuid in series(page, "gpu_info", "vendor", "uuid")}
    found = series(page, "container_memory_used_bytes", "uuid", "pod")
    return {(vendors[uuid], pod): bytes_ for (uuid, pod), bytes_ in found.items()}


def test_an_ascend_and_a_cambricon_by_container(
    bed: Bed, run_pod: RunPod, tmp_path: Path, libraries_build: Path
) -> None:
    """
    Two containers on the devices of two vendors: each has what its processes hold, those that it forked among them.

    What ends is gone, and what no container explains is nobody's.
    """
    one, two = (run_pod("main", name=name).containers["main"] for name in ("one", "two"))
    child = one.spawn("/bin/sleep", "1000")
    folder = tmp_path / "fake-libraries"
    dcmi, cndev = (FakeLibrary(folder, libraries_build, variant) for variant in ("dcmi", "cndev"))

    def write(npu: Mapping[int, int], mlu: Mapping[int, int]) -> None:
        for library, uuid, processes in ((dcmi, NPU, npu), (cndev, MLU, mlu)):
            entries = tuple(FakeProcess(pid, gib * GiB) for pid, gib in processes.items())
            free = 32 * GiB - sum(entry.memory for entry in entries)
            library.write(FakeDevice(0, uuid, free=free, processes=entries))

    write({one.pid: 2, child: 1, two.pid: 4}, {two.pid: 8})
    names = bed.write_inventory(tmp_path / "names.json")
    libraries = f"{dcmi.path.parent}:{cndev.path.parent}"
    flags = ("--devices=dcmi,cndev", "--sampling.interval=500ms", "--node.host-root=/", f"--names.file={names}")
    with Daemon(*flags, env={"LD_LIBRARY_PATH": libraries, "FAKE_LIBRARIES": str(folder)}) as daemon:

        def become(wanted: dict[tuple[str, ...], float], what: str) -> str:
            def there() -> str | None:
                page = daemon.get("/metrics")[1]
                return page if held(page) == wanted else None

            return until(there, what, daemon)

        page = become(
            {("huawei", "one"): 3 * GiB, ("huawei", "two"): 4 * GiB, ("cambricon", "two"): 8 * GiB}, "both containers"
        )
        assert series(page, "container_processes", "pod", "uuid")["one", NPU] == 2
        assert set(series(page, "device_memory_unattributed_bytes", "uuid").values()) == {0}
        two.stop()
        write({one.pid: 2, child: 1}, {})
        become({("huawei", "one"): 3 * GiB}, "what ended to be gone")
        assert daemon.stop()[0] == 0
