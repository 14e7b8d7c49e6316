"""What the tests of limits share: the catalogue, fixtures as systems write them, facts in one line."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from exporter.limits import LeafDevice, Options, Resolution, Seen, resolve
from exporter.limits.loading import builtin
from exporter.limits.node_devices import devices_of
from exporter.model import DeclaredContainer, DeclaredPod, DeviceKey, GpuUuid
from exporter.objects.manifest import Manifest, read

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="session")
def manifest() -> Callable[[str], Manifest]:
    """Read a fixture by the name of its system."""
    return _manifest


@cache
def _manifest(name: str) -> Manifest:
    return read((FIXTURES / f"{name}.yaml").read_text(), name)


@pytest.fixture
def resolved(manifest: Callable[[str], Manifest]) -> Callable[..., Resolution]:
    """Resolve a pod of a fixture, as `explain -f` does: devices only as the node's labels tell."""

    def resolution(
        system: str,
        pod: str,
        devices: tuple[LeafDevice, ...] | None = None,
        first_seen: Iterable[Seen] = (),
        options: Options = Options(),
    ) -> Resolution:
        found = manifest(system)
        node = found.nodes[0] if found.nodes else None
        chosen = next(each for each in found.pods if each.name == pod)
        known = devices if devices is not None else devices_of(node) if node else ()
        return resolve(chosen, node, known, builtin(), first_seen, claims=found.claims, options=options)

    return resolution


@pytest.fixture(scope="session")
def gpus() -> Callable[..., tuple[LeafDevice, ...]]:
    """Make GPUs with MIG off, of so many bytes each."""

    def make(*memory: int, **more: object) -> tuple[LeafDevice, ...]:
        return tuple(
            LeafDevice(
                DeviceKey(GpuUuid(f"GPU-{index:08x}-1111-2222-3333-444444444444")),
                index,
                minor=index,
                memory=size,
                **more,  # type: ignore[arg-type]
            )
            for index, size in enumerate(memory)
        )

    return make


@pytest.fixture
def resolved_on(
    resolved: Callable[..., Resolution], gpus: Callable[..., tuple[LeafDevice, ...]]
) -> Callable[..., Resolution]:
    """Resolve a pod of a fixture on GPUs of so many bytes each."""

    def resolution(system: str, pod: str, *memory: int) -> Resolution:
        return resolved(system, pod, devices=gpus(*memory))

    return resolution


@pytest.fixture
def pod() -> Callable[..., DeclaredPod]:
    """Make a pod with one container `main` that asks for these resources."""

    def make(
        resources: dict[str, str] | None = None,
        *,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        scheduler: str = "",
    ) -> DeclaredPod:
        main = DeclaredContainer("main", limits=resources or {}, env=env or {})
        return DeclaredPod("uid-1", "team-a", "pod", labels or {}, annotations or {}, (main,), scheduler=scheduler)

    return make
