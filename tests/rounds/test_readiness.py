"""When the daemon is ready: what holds an install back, and what must not hold back an update."""

import pytest

from builders import device, fault, gpu, memory, snapshot
from exporter.model import Fault, Snapshot
from exporter.rounds.readiness import waits_for


def seen(*faults: Fault) -> Snapshot:
    """A round with one GPU."""
    return snapshot(device(gpu(memory=memory())), faults=faults)


@pytest.mark.parametrize(
    ("source", "reason", "subject"),
    [
        ("devices", "gpu_lost", "GPU-1"),
        ("devices", "gpu_not_found", "index 3"),
        ("devices", "driver_error", "GPU-1"),
        ("devices", "access_lost", "GPU-1"),
        ("devices", "driver_hung", ""),
        ("devices", "library_gone", ""),
        ("devices", "layout_unknown", "GPU-1"),
        ("devices", "source_failed", ""),
        ("devices", "kernel_unreadable", ""),
        ("accounts", "accounts_do_not_close", "GPU-1"),
    ],
)
def test_hardware_holds_no_update_back(source: str, reason: str, subject: str) -> None:
    """A GPU off the bus or a dead library is a fault. The daemon is ready for the rest; without a rest it is not."""
    broken = fault(reason, subject, source=source)
    assert waits_for(seen(broken)) == ()
    assert waits_for(snapshot(faults=[broken])) == (f"{source}: {reason}",)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("devices", "no_permission"),
        ("host", "pid_domain_unproven"),
        ("host", "processes_unreadable"),
        ("names", "names_invalid"),
        ("api", "api_forbidden"),
        ("api", "api_pending"),
        ("allocations", "kubelet_away"),
    ],
)
def test_a_wrong_deployment_does_not_go_green(source: str, reason: str) -> None:
    """A fault that another deployment would fix keeps the daemon unready, whatever it sees otherwise."""
    assert waits_for(seen(fault(reason, source=source))) == (f"{source}: {reason}",)


def test_what_leaves_the_round_complete_is_not_waited_for() -> None:
    """Remembered names, a GPU that belongs to another container, and a node without GPUs: nothing is missing."""
    foreign = fault("no_permission", "index 1", incomplete=False)
    assert waits_for(seen(foreign, fault("api_away", source="api", incomplete=False))) == ()
    assert waits_for(snapshot(faults=[foreign])) == waits_for(snapshot()) == ()


def test_all_that_is_waited_for_is_named_once() -> None:
    """Two GPUs with one reason are named once; what is not waited for is left out."""
    found = [fault("no_permission", "GPU-1"), fault("no_permission", "GPU-2"), fault("gpu_lost", "GPU-3")]
    assert waits_for(seen(*found, fault("api_pending", source="api"))) == ("api: api_pending", "devices: no_permission")
