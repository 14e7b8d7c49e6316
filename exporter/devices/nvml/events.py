"""
XID errors, counted as the driver reports them.

What comes in: nothing; the driver sends events by itself. What goes out: the count of each XID on each GPU since the
daemon started, and a fault while events cannot be received.

The rule: no other thread waits for this one, and no error ends it without a fault. It waits for events in a blocking
call. So it has a thread and an initialisation of the library of its own: NVML counts its users, and stays initialised
until the last one shuts it down. A burst of events costs a counter, not a queue. The counters are ours, and go on
whatever happens to the driver. With MIG on, a process needs the right to monitor all instances. Without it, only events
of the whole GPU arrive; instances have no events of their own
(https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html). Drivers from R615 on also have GPU Operational Events,
a preview that repeats every XID; it is not read.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from exporter.devices import DeviceError
from exporter.devices.errors import REFUSED, LibraryError, UnsupportedError
from exporter.devices.nvml.inventory import find_gpus
from exporter.devices.nvml.library import NO_INSTANCE, Event, EventSet, Handle, Library
from exporter.devices.opening import longer
from exporter.devices.xids import COMMON, UNKNOWN
from exporter.model import Fault, GpuUuid, XidCounts, XidErrors

SLICE_MS = 800
"""
Milliseconds for one wait, and so the delay until the thread ends.

Each wait without an event costs 0.2 to 0.5 ms of CPU on a node at rest, because the caches are cold. To sleep between
two short looks would cost less, but a GPU that is lost ends the next look with an error: the XID that explains the loss
would be thrown away with the set.
"""
LOOK_AGAIN = 60.0
"""Seconds between two searches for GPUs whose events could not be received before."""
AWAY = 0
"""No handle has this address: it stands for a registered GPU that did not answer at the last search."""
MOST = 64
"""Different XIDs that are kept per GPU; any further ones are counted as `UNKNOWN`."""


class XidListener:
    """Counts XID errors on a daemon thread. `deadline`: seconds after which a call counts as hanging."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self._deadline = deadline
        self._clock = clock
        self._library = Library(self._beat)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._call = ""
        self._call_began: float | None = None
        self._delay = 0.0
        self._listened: dict[int, GpuUuid] = {}
        self._registered: dict[GpuUuid, int] = {}
        # Only the thread writes these. It replaces them as a whole, so that a reader has either the old or the new.
        self._counts: Mapping[GpuUuid, Mapping[int, XidErrors]] = {}
        self._deaf: Mapping[GpuUuid, str] = {}
        self._homeless = 0
        self._trouble = ""

    def start(self) -> None:
        """Begin to listen. Earlier events are lost."""
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> XidCounts:
        """All events so far. A GPU whose events could never be received is missing."""
        return self._counts

    def faults(self) -> tuple[Fault, ...]:
        """Return the reasons why events cannot be received. They leave the round complete."""
        began = self._call_began
        if began is not None and time.monotonic() - began > self._deadline:
            return (_fault(f"{self._call} has not returned within {self._deadline:g} s"),)
        if self._trouble:
            return (_fault(self._trouble),)
        homeless = (_fault(f"{self._homeless} were of a GPU that did not report its UUID"),) if self._homeless else ()
        return (*homeless, *(_fault(why, uuid) for uuid, why in self._deaf.items()))

    async def close(self, within: float) -> None:
        """Release the driver; after `within` seconds leave the thread behind."""
        self._ending.set()
        if self._thread is not None and self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, within)

    # --- on the thread ---

    def _beat(self, call: str) -> None:
        self._call, self._call_began = call, time.monotonic()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._listen()
            except UnsupportedError:
                return  # a library without events
            except (LibraryError, DeviceError) as error:
                self._trouble = str(error)
            except Exception as error:  # noqa: BLE001  (a bug of ours: reported and tried again, as in a round)
                self._trouble = f"{type(error).__name__}: {error}"
            finally:
                self._call_began = None
            self._delay = longer(self._delay)
            self._ending.wait(self._delay)

    def _listen(self) -> None:
        """Listen until the thread ends, or until the driver refuses."""
        self._library.start()
        try:
            while not self._ending.is_set():
                events = self._library.event_set()
                try:
                    self._hear(events)
                finally:
                    self._library.event_set_free(events)
                    self._listened.clear()
                    self._registered.clear()
        finally:
            self._library.stop()

    def _hear(self, events: EventSet) -> None:
        """Count events until the set has to be made again."""
        look_at = time.monotonic()
        while not self._ending.is_set():
            if time.monotonic() >= look_at:
                if not self._register(events):
                    return
                look_at = time.monotonic() + LOOK_AGAIN
            if (event := self._library.wait(events, SLICE_MS)) is not None:
                self._count(event)
            self._trouble, self._delay = "", 0.0

    def _register(self, events: EventSet) -> bool:
        """
        Listen to every GPU that is not registered yet. GPUs that do not answer are reported by the rounds.

        False when a registered GPU is back after it was away, or has another handle: its registration was lost with it.
        NVIDIA does not document whether one set may register a GPU twice.
        """
        handles = {gpu.uuid: gpu.handle for gpu in find_gpus(self._library, {}).gpus}
        here = {uuid: self._library.address(handle) for uuid, handle in handles.items()}
        if any(self._registered.get(uuid, address) != address for uuid, address in here.items()):
            return False
        self._registered = {uuid: address if uuid in here else AWAY for uuid, address in self._registered.items()}
        deaf: dict[GpuUuid, str] = {}
        for uuid, handle in handles.items():
            if uuid in self._registered:
                continue
            try:
                self._library.register_xids(handle, events)
            except UnsupportedError:
                continue
            except REFUSED as error:
                deaf[uuid] = str(error)
                continue
            self._listened[here[uuid]], self._registered[uuid] = uuid, here[uuid]
            if uuid not in self._counts:
                self._counts = {**self._counts, uuid: dict.fromkeys(COMMON, XidErrors())}
        self._deaf = deaf
        return True

    def _count(self, event: Event) -> None:
        handle, code, instance = event
        if (uuid := self._listened.get(self._library.address(handle)) or self._uuid(handle)) is None:
            self._homeless += 1
            return
        known = self._counts.get(uuid, {})
        if code not in known and len(known) >= MOST:
            code = UNKNOWN
        heard = XidErrors(
            known.get(code, XidErrors()).count + 1, self._clock(), None if instance == NO_INSTANCE else instance
        )
        self._counts = {**self._counts, uuid: {**known, code: heard}}

    def _uuid(self, handle: Handle) -> GpuUuid | None:
        """Ask a GPU for its UUID: its handle differs from the registered one."""
        try:
            return GpuUuid(self._library.uuid(handle))
        except REFUSED:
            return None


def _fault(why: str, uuid: str = "") -> Fault:
    return Fault("devices", "xids_unheard", f"XID errors are not heard: {why}", uuid, incomplete=False)
