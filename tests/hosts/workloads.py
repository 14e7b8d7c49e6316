"""Pods of the guest that hold memory of its fake GPUs. In: a bed, sizes. Out: pods that run, and hold these bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.client import Api, Object, until
from cluster.stage import SHARED, spec
from hosts.bed import GuestBed

PATIENT = 240.0
"""Seconds: an emulated processor starts a container in five to twenty."""


@dataclass
class Workloads:
    """The pods of one namespace."""

    bed: GuestBed
    api: Api
    namespace: str

    async def create(self, name: str, *containers: str, annotations: Mapping[str, str] | None = None) -> None:
        """
        Create a pod without waiting: a container for each size, such as "1GiB", named main, second, third.

        A container speaks by the name `NAMESPACE.POD.CONTAINER`.
        """
        made = spec(resource=SHARED)
        first = made["containers"][0]
        made["containers"] = [
            {
                **first,
                "name": box,
                "command": ["/bin/workload", f"alloc visible {size} compute"],
                "env": [{"name": "WORKLOAD_NAME", "value": f"{self.namespace}.{name}.{box}"}],
            }
            for box, size in zip(("main", "second", "third"), containers, strict=False)
        ]
        manifest = {"metadata": {"name": name, "labels": {"app": name}, "annotations": dict(annotations or {})}}
        await self.api.create(f"{self.pods}", {"apiVersion": "v1", "kind": "Pod", "spec": made, **manifest})

    async def ready(self, *names: str) -> dict[str, Object]:
        """Wait until these pods are ready; return them by name."""
        found: dict[str, Object] = {}

        async def all_ready() -> bool:
            for one in (await self.api.get(self.pods))["items"]:
                conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
                if conditions.get("Ready") == "True":
                    found[one["metadata"]["name"]] = one
            return found.keys() >= set(names)

        await until(all_ready, f"the pods {names} to be ready", PATIENT)
        return found

    @property
    def pods(self) -> str:
        """Path of the pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"


__all__ = ["PATIENT", "Workloads"]
