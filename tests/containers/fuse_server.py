"""
A FUSE file system with one file, which can be opened and never says what it is.

In: a folder to mount at (as root). Out: the line `mounted`, then `asked` for each question that gets no answer. Its
requests and answers are those of <linux/fuse.h>, version 7.31. It ends with SIGKILL, which frees all waiting processes.
"""

import ctypes
import os
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, INIT, ACCESS = 1, 2, 3, 14, 26, 34
BATCH_FORGET, INTERRUPT = 42, 36
ROOT, FILE = 1, 2
FOREVER = 10**9
HEADER = struct.Struct("<IIQQIIII")
"""Length, operation, number, inode, user, group, process, padding."""


def attributes(inode: int) -> bytes:
    """Write `fuse_attr`."""
    mode = stat.S_IFDIR | 0o755 if inode == ROOT else stat.S_IFREG | 0o644
    return struct.pack("<6Q10I", inode, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(operation: int, inode: int) -> bytes | int | None:
    """Answer a request: what is asked, an error number, or nothing at all."""
    match operation:
        case _ if operation == INIT:
            return struct.pack("<4I2H2I2HI7I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, 0, *[0] * 7)
        case _ if operation == LOOKUP:
            # The name is valid for ever, the file's attributes for no time: each process that wants them has to ask.
            return struct.pack("<4Q2I", FILE, 0, FOREVER, 0, 0, 0) + attributes(FILE)
        case _ if operation == GETATTR and inode == ROOT:
            return struct.pack("<Q2I", FOREVER, 0, 0) + attributes(ROOT)
        case _ if operation == OPEN:
            return struct.pack("<Q2I", 0, 0, 0)
        case _ if operation in {GETATTR, FORGET, BATCH_FORGET, INTERRUPT}:
            return None
        case _ if operation == ACCESS:
            return b""
    return 38  # ENOSYS: the kernel does without it, and does not ask again


def serve(folder: str) -> None:
    """Mount, and serve for as long as we live."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tenant", folder.encode(), b"fuse", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount")
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 17)
        _, operation, number, inode, *_ = HEADER.unpack_from(request)
        told = answer(operation, inode)
        if operation == GETATTR and told is None:
            print("asked", flush=True)
        if told is not None:
            error, body = (-told, b"") if isinstance(told, int) else (0, told)
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, number) + body)


if __name__ == "__main__":
    serve(sys.argv[1])
