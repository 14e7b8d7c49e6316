"""
What the sources of each vendor can never tell; docs/devices.md has the whole of it.

What comes in: a vendor, and whether its lists have everybody. What goes out: words, said once here, and never a 0 in a
metric.
"""

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "nvidia": "NVIDIA",
    "amd": "AMD",
    "intel": "Intel",
    "huawei": "Huawei Ascend",
    "hygon": "Hygon",
    "cambricon": "Cambricon",
    "iluvatar": "Iluvatar",
    "enflame": "Enflame",
    "metax": "MetaX",
    "kunlunxin": "Kunlunxin",
    "t-head": "T-Head",
    "mthreads": "Moore Threads",
}
UNKNOWN: Mapping[str, str] = {
    "amd": "how busy ROCm's processes keep a GPU; load, power and temperature of a partition",
    "intel": "how busy a process keeps the video engines; load of the whole GPU; engines of a virtual function",
    "huawei": "how busy a process keeps an NPU; processes of a vNPU; more than 31 processes of one",
    "cambricon": "which sMLU or MIM instance a process is on",
    "iluvatar": "how busy a process keeps a device",
    "enflame": "how busy a process keeps a device",
    "t-head": "how busy a process keeps a device",
    "kunlunxin": "how busy a process keeps a device",
    "metax": "how busy a process keeps a device",
    "mthreads": "memory by process, and so by container",
    "hygon": "how busy a process keeps a device; how much of each device a process holds that is on several",
}
PARTIAL: Mapping[str, str] = {
    "amd": "by kfd alone: what is held by DRM (Vulkan, OpenGL, VA-API), and so what a container holds that has no ROCm "
    "process; --devices=drm tells",
}
"""The same, where the lists name those alone who use a GPU in one way."""
TRUSTED = frozenset({"nvidia"})
"""Whom `policy.trusted_vendors` names where nobody wrote it; of the others nobody compared a figure with hardware."""
