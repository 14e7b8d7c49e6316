"""A client of the Container Runtime Interface, as the kubelet is one; blocking calls, for tests of either colour.

In: the path of a runtime's socket and messages of cri.proto. Out: the runtime's answers.
Law: one method, one call of the interface; no call invents a field. What a kubelet would fill in is for pods.py.
The calls run on a private event loop in a thread, so they work inside an async test too. They block its loop
meanwhile; where that matters, use `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from containers import cri_pb2 as pb

Answer = TypeVar("Answer", bound=Message)


class CriError(Exception):
    """The runtime refused the call, did not answer in time, or is not there."""


class Cri:
    """The runtime that listens on `socket`. Methods raise CriError. `close()` ends the thread and the connection."""

    def __init__(self, socket: Path, *, timeout_s: float = 30.0) -> None:
        self.socket = socket
        self.timeout_s = timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cri-client", daemon=True)
        self._thread.start()
        self._channel = asyncio.run_coroutine_threadsafe(self._connect(), self._loop).result()

    def close(self) -> None:
        """End the connection. A second call does nothing."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def version(self) -> pb.VersionResponse:
        return self._runtime("Version", pb.VersionRequest(version="v1"), pb.VersionResponse)

    def run_pod_sandbox(self, config: pb.PodSandboxConfig) -> str:
        """The id of the new sandbox: 64 hex digits."""
        request = pb.RunPodSandboxRequest(config=config)
        return self._runtime("RunPodSandbox", request, pb.RunPodSandboxResponse).pod_sandbox_id

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """End the sandbox and, at once, all containers in it."""
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        self._runtime("StopPodSandbox", request, pb.StopPodSandboxResponse)

    def remove_pod_sandbox(self, sandbox_id: str) -> None:
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        self._runtime("RemovePodSandbox", request, pb.RemovePodSandboxResponse)

    def list_pod_sandboxes(self) -> Sequence[pb.PodSandbox]:
        return self._runtime("ListPodSandbox", pb.ListPodSandboxRequest(), pb.ListPodSandboxResponse).items

    def create_container(self, sandbox_id: str, config: pb.ContainerConfig, sandbox_config: pb.PodSandboxConfig) -> str:
        """The id of the new container, not started: 64 hex digits."""
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config)
        return self._runtime("CreateContainer", request, pb.CreateContainerResponse).container_id

    def start_container(self, container_id: str) -> None:
        request = pb.StartContainerRequest(container_id=container_id)
        self._runtime("StartContainer", request, pb.StartContainerResponse)

    def stop_container(self, container_id: str, *, grace_s: int = 0) -> None:
        """SIGTERM, and SIGKILL after `grace_s` seconds; at once with 0."""
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_s)
        self._runtime("StopContainer", request, pb.StopContainerResponse)

    def remove_container(self, container_id: str) -> None:
        request = pb.RemoveContainerRequest(container_id=container_id)
        self._runtime("RemoveContainer", request, pb.RemoveContainerResponse)

    def list_containers(
        self, *, running: bool = False, labels: Mapping[str, str] | None = None
    ) -> Sequence[pb.Container]:
        """All containers (sandboxes are none), or those that run, or those with these labels."""
        state = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING) if running else None
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(state=state, label_selector=labels))
        return self._runtime("ListContainers", request, pb.ListContainersResponse).containers

    def container_status(self, container_id: str) -> pb.ContainerStatusResponse:
        """With `info["info"]`, containerd's own JSON, in which "pid" is that of the container's first process."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        return self._runtime("ContainerStatus", request, pb.ContainerStatusResponse)

    def exec_sync(self, container_id: str, command: Sequence[str], *, timeout_s: int = 10) -> pb.ExecSyncResponse:
        """Run a command in a container and wait for it: stdout, stderr (bytes) and exit_code."""
        request = pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=timeout_s)
        return self._runtime("ExecSync", request, pb.ExecSyncResponse)

    def image_present(self, name: str) -> bool:
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
        return self._call("/runtime.v1.ImageService/ImageStatus", request, pb.ImageStatusResponse).HasField("image")

    def _runtime(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        return self._call(f"/runtime.v1.RuntimeService/{method}", request, answer)

    def _call(self, path: str, request: Message, answer: type[Answer]) -> Answer:
        async def ask() -> Answer:
            method = UnaryUnaryMethod(self._channel, path, type(request), answer)
            result: Answer = await method(request, timeout=self.timeout_s)
            return result

        try:
            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
        except GRPCError as error:
            raise CriError(f"{path}: {error.status.name}: {error.message}") from error
        except (OSError, ProtocolError, StreamTerminatedError) as error:  # TimeoutError is an OSError
            raise CriError(f"{path} on {self.socket}: {error!r}") from error

    async def _connect(self) -> Channel:
        return Channel(path=str(self.socket))

    async def _disconnect(self) -> None:
        self._channel.close()
        await asyncio.sleep(0)  # the transport closes in the loop's next round, and warns when the loop ends before
