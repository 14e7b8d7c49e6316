"""
XID errors: the NVIDIA driver's errors of a GPU, by number.

What comes in: a number. What goes out: its meaning in a sentence, its usual cause, and its remedy.

The rule: data. The wording is ours; the numbers, meanings and remedies are NVIDIA's, from the catalogue (`CATALOGUE`)
and the guide to it (`GUIDE`). A number that is missing here is counted, and reported without a meaning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
GUIDE = "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"


class Cause(StrEnum):
    """
    The usual cause of an XID.

    `application` follows NVIDIA's device plugin: no reason to take a GPU out of use
    (https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go).
    """

    APPLICATION = "application"
    MEMORY = "memory"
    LINK = "link"
    DRIVER = "driver"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Xid:
    """One number. `common`: its counter is 0 before the first event, so that the first one is an increase."""

    code: int
    cause: Cause
    meaning: str
    remedy: str
    common: bool = False


_APPLICATION = "look into the application; if different applications meet it on this GPU, check the GPU"
_RESET = "drain the node and reset the GPU"
_LINKS = "check the NVLink bridges, switches and the fabric manager; drain the node and reset the GPU"
_FIRMWARE = "drain the node, reset the GPU or reboot; update the driver if it comes back"

ROWS = (
    Xid(13, Cause.APPLICATION, "a kernel did something illegal (graphics engine exception)", _APPLICATION, common=True),
    Xid(31, Cause.APPLICATION, "a program read or wrote an address that is not its own", _APPLICATION, common=True),
    Xid(32, Cause.GPU, "a command buffer arrived corrupted", "check the PCIe slot and link; then the driver"),
    Xid(38, Cause.DRIVER, "the driver's firmware met an error", _FIRMWARE),
    Xid(43, Cause.APPLICATION, "a program's channel was stopped after its own fault", _APPLICATION, common=True),
    Xid(
        45,
        Cause.APPLICATION,
        "what a program had on the GPU was cleaned up: it was killed, or another error came first",
        "look for the XID before it; alone it is what a killed process leaves",
        common=True,
    ),
    Xid(46, Cause.GPU, "the GPU stopped processing", _RESET),
    Xid(48, Cause.MEMORY, "two bits of the GPU's memory were wrong: uncorrectable", _RESET, common=True),
    Xid(62, Cause.DRIVER, "a microcontroller inside the GPU halted", _FIRMWARE),
    Xid(
        63,
        Cause.MEMORY,
        "a row or page of memory was marked to be replaced",
        "reset the GPU when its work is done: only then it is replaced",
        common=True,
    ),
    Xid(
        64,
        Cause.MEMORY,
        "a row or page of memory could not be replaced",
        "drain the node and reset the GPU; have it replaced if it comes back",
        common=True,
    ),
    Xid(68, Cause.APPLICATION, "the video decoder met an exception", _APPLICATION),
    Xid(69, Cause.APPLICATION, "a program sent a command that its engine does not know", _APPLICATION),
    Xid(74, Cause.LINK, "an NVLink failed", _LINKS, common=True),
    Xid(
        79,
        Cause.GPU,
        "the GPU has fallen off the bus",
        "drain the node and power it off and on; check power, heat and the PCIe slot",
        common=True,
    ),
    Xid(
        92,
        Cause.MEMORY,
        "single bits of memory are corrected at a high rate",
        "plan a reset; watch the ECC counters",
        common=True,
    ),
    Xid(
        94,
        Cause.MEMORY,
        "an uncorrectable memory error ended the programs that it touched, and no others",
        "start those programs anew; reset the GPU when its work is done",
        common=True,
    ),
    Xid(
        95,
        Cause.MEMORY,
        "an uncorrectable memory error may have touched every program on the GPU",
        "drain the node and reset the GPU at once",
        common=True,
    ),
    Xid(109, Cause.APPLICATION, "a program did not let go of the GPU in time (context switch timeout)", _APPLICATION),
    Xid(110, Cause.GPU, "a security fault inside the GPU", _RESET),
    Xid(119, Cause.DRIVER, "the GPU's system processor (GSP) did not answer the driver", _FIRMWARE, common=True),
    Xid(120, Cause.DRIVER, "the GPU's system processor (GSP) met an error", _FIRMWARE, common=True),
    Xid(121, Cause.LINK, "an error on the link between CPU and GPU was corrected", "watch it; have the board checked"),
    Xid(137, Cause.APPLICATION, "an access over NVLink was refused: another GPU's program faulted", _APPLICATION),
    Xid(140, Cause.MEMORY, "memory errors that the GPU could not recover from", _RESET, common=True),
    Xid(143, Cause.GPU, "the GPU could not be initialised", _RESET),
    *(Xid(code, Cause.LINK, "an error inside the NVLink units (NVLink 5)", _LINKS) for code in range(144, 151)),
    Xid(
        154,
        Cause.GPU,
        "what the GPU needs to recover has changed",
        "see the recovery action in `nvidia-smi -q`, and do that: reset or reboot",
        common=True,
    ),
    Xid(156, Cause.MEMORY, "a part of the GPU's memory was taken out of use", "watch it; reset when its work is done"),
    Xid(157, Cause.MEMORY, "a part of the GPU's memory could not be taken out of use", _RESET),
)

UNKNOWN = 999
"""NVML's number for an error that the driver did not name."""

XIDS: Mapping[int, Xid] = {row.code: row for row in ROWS}
COMMON = tuple(row.code for row in ROWS if row.common)
