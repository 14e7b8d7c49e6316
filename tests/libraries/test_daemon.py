"""A node with accelerators of two vendors, seen by the daemon as a process of its own that finds their libraries."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from daemon.running import Daemon, until
from libraries.fake import FakeDevice, FakeLibrary, FakeProcess, GiB
from libraries.proc import Proc, pod_cgroup
from scraped import series

pytestmark = pytest.mark.daemon

UID, CONTAINER = "11111111-1111-4111-8111-111111111111", sha256(b"trainer").hexdigest()
NPU = FakeDevice(0, "E0F4EE64-802061B1-6A691492-89528485-104301E3", processes=(FakeProcess(4001, 5 * GiB),))
MLU = FakeDevice(0, "00000000-0000-0000-0000-000012345678", processes=(FakeProcess(4001, 3 * GiB),))


@pytest.fixture
def node(tmp_path: Path, libraries_build: Path) -> Iterator[tuple[Daemon, FakeLibrary, FakeLibrary]]:
    """A daemon on a node with an Ascend and a Cambricon, and their libraries."""
    host = Proc.made(tmp_path / "host")
    host.process(4001, pod_cgroup(UID, CONTAINER))
    folder = tmp_path / "fake-libraries"
    npu, mlu = (FakeLibrary(folder, libraries_build, variant) for variant in ("dcmi", "cndev"))
    npu.write(NPU)
    mlu.write(MLU)
    entry = {"namespace": "ml", "pod": "trainer", "pod_uid": UID, "container": "main", "container_id": CONTAINER}
    (tmp_path / "names.json").write_text(json.dumps([entry]))
    flags = (
        *("--devices", "dcmi,cndev", "--node.host-root", str(host.root), "--node.trust-pid-namespace"),
        *("--names.file", str(tmp_path / "names.json"), "--sampling.interval", "200ms"),
        *("--sampling.fast-interval", "100ms"),
    )
    env = {
        "LD_LIBRARY_PATH": f"{npu.path.parent}:{mlu.path.parent}",
        "FAKE_LIBRARIES": str(folder),
    }
    with Daemon(*flags, env=env) as daemon:
        yield daemon, npu, mlu
        npu.release()


def test_two_vendors_on_one_node(node: tuple[Daemon, FakeLibrary, FakeLibrary]) -> None:
    """Both are read; the driver of one may go or hang: that costs its own figures, neither the other's nor the end."""
    daemon, npu, _ = node
    daemon.snapshot()
    page = daemon.page()
    used = series(page, "container_memory_used_bytes", "uuid", "pod", "container")
    assert used == {(NPU.uuid, "trainer", "main"): 5 * GiB, (f"MLU-{MLU.uuid}", "trainer", "main"): 3 * GiB}
    vendors = series(page, "gpu_info", "vendor", "pci_bus_id")
    assert set(vendors) == {("huawei", "0000:3b:00.0"), ("cambricon", "0000:3b:00.0")}

    npu.unload_driver()

    def without_one() -> bool:
        up = series(daemon.get("/metrics")[1], "source_up", "source")
        return up.get(("dcmi",)) == 0

    until(without_one, "the Ascend's source to be down", daemon)
    page = daemon.page()
    assert series(page, "source_up", "source")["cndev",] == 1
    assert (f"MLU-{MLU.uuid}", "trainer") in series(page, "container_memory_used_bytes", "uuid", "pod")

    npu.write(NPU)
    npu.hang("dcmi_get_device_hbm_info")
    assert daemon.stop()[0] == 0
