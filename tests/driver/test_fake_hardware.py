"""The fake driver's fields, spare rows, limits and VBIOS, through the real pynvml and its real structures."""

from __future__ import annotations

from driver.gpus import ALL_LINKS
from driver.node import FakeComputeInstance, FakeField, FakeGpu, FakeGpuInstance, FakeNode, GiB, gpus
from driver.probe import Probe

NOT_SUPPORTED, LOST = 3, 15
INSTANCES = (FakeGpuInstance(3, 10 * GiB, (FakeComputeInstance("MIG-a", slot=0),)),)


def test_each_field_has_its_own_answer(fake_node: FakeNode, nvml: Probe) -> None:
    """Listed, refused, of one link only, not listed, not written: five answers in a call that succeeds."""
    listed = (
        FakeField(94, 7),
        FakeField(82, result=LOST),
        FakeField(221, 5, scope=ALL_LINKS, type=3),
        FakeField(38, 9, silent=True),
    )
    (card,) = gpus(1, fields=listed)
    fake_node.write([card])

    asked = [94, 82, (221, 0), (221, ALL_LINKS), 142, 38]
    answers = nvml.ask("nvmlDeviceGetFieldValues", nvml.device(card.uuid), asked)

    assert [(one["nvmlReturn"], one["valueType"], one["value"]["ullVal"]) for one in answers] == [
        (0, 1, 7),
        (LOST, 0, 0),
        (NOT_SUPPORTED, 0, 0),
        (0, 3, 5),
        (NOT_SUPPORTED, 0, 0),
        (0, 0, 0),
    ]
    assert [bool(one["timestamp"]) for one in answers] == [True] * 5 + [False]
    assert fake_node.calls("nvmlDeviceGetFieldValues") == 1
    assert fake_node.calls("nvmlDeviceGetFieldValues(221)") == 2


def test_limits_spare_rows_and_vbios_are_those_of_the_node_file(fake_node: FakeNode, nvml: Probe) -> None:
    """Milliwatts, degrees, banks by spare rows, and a text."""
    (card,) = gpus(1, banks=(1, 2, 3, 4, 5), power_limit_mw=300_000)
    fake_node.write([card])
    gpu = nvml.device(card.uuid)

    assert nvml.ask("nvmlDeviceGetEnforcedPowerLimit", gpu) == 300_000
    assert nvml.ask("nvmlDeviceGetPowerManagementDefaultLimit", gpu) == 400_000
    assert [nvml.ask("nvmlDeviceGetTemperatureThreshold", gpu, which) for which in range(4)] == [92, 89, 95, 85]
    banks = {"max": 1, "high": 2, "partial": 3, "low": 4, "none": 5}
    assert nvml.ask("nvmlDeviceGetRowRemapperHistogram", gpu) == banks
    assert nvml.ask("nvmlDeviceGetVbiosVersion", gpu) == "92.00.19.00.13"


def test_what_a_gpu_lacks_and_what_an_instance_never_has_is_not_supported(fake_node: FakeNode, nvml: Probe) -> None:
    """Each question on its own; a MIG device has none of it."""
    lacking = {"banks": None, "vbios": None, "power_limit_mw": None, "power_default_mw": None, "limit_slowdown": None}
    (card,) = gpus(1, FakeGpu(mig="on", instances=INSTANCES), **lacking)
    questions = (
        ("nvmlDeviceGetEnforcedPowerLimit",),
        ("nvmlDeviceGetPowerManagementDefaultLimit",),
        ("nvmlDeviceGetTemperatureThreshold", 1),
        ("nvmlDeviceGetRowRemapperHistogram",),
        ("nvmlDeviceGetVbiosVersion",),
    )
    whole = gpus(1, FakeGpu(mig="on", instances=INSTANCES))[0]
    for shown, uuid in ((card, card.uuid), (whole, "MIG-a")):
        fake_node.write([shown])
        handle = nvml.device(uuid)
        assert [nvml.code(name, handle, *rest) for name, *rest in questions] == [NOT_SUPPORTED] * len(questions)
    (answer,) = nvml.ask("nvmlDeviceGetFieldValues", nvml.device("MIG-a"), [94])
    assert answer["nvmlReturn"] == NOT_SUPPORTED
