"""
The texts of a row: in resources, annotations, labels, environments, claims.

What comes in: a row and a pod. What goes out: the texts of the row, not yet decoded, each with its place.

The rule: the mechanism alone decides where to look, never the system.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from exporter.limits.decoding import Asked, Scene
from exporter.limits.patterns import matching
from exporter.limits.rows import Row, Star
from exporter.model import Claim, ClaimedDevice, DeclaredContainer, DeclaredPod, Mechanism

_DEVICE = "device"
"""The key of a claim row for the device itself, not for its consumed capacity."""

Found = tuple[str, Asked]


def readings(scene: Scene, row: Row) -> Iterator[Found]:
    """Yield each text of the row in the pod, with its place."""
    pod, asked = scene.pod, Asked(scene, row, row.key)
    match row.mechanism:
        case Mechanism.RESOURCE | Mechanism.POLICY:
            yield from _of_containers(asked, lambda container: container.resources())
        case Mechanism.ENV:
            yield from _of_containers(asked, lambda container: container.env)
        case Mechanism.ANNOTATION:
            yield from _of_pod(asked, pod.annotations)
        case Mechanism.LABEL:
            yield from _of_pod(asked, pod.labels)
        case Mechanism.CLAIM:
            yield from _of_claims(asked)
        case Mechanism.CLAIM_CONFIG:
            yield from _of_configs(asked)


def _of_containers(asked: Asked, texts_of: Callable[[DeclaredContainer], Mapping[str, str]]) -> Iterator[Found]:
    for container in asked.scene.pod.containers:
        texts = texts_of(container)
        if any(matching(key, {**texts, **asked.scene.pod.annotations}) for key in asked.row.without):
            continue
        for key, stars in matching(asked.row.key, texts):
            yield texts[key], replace(asked, key=key, container=container, stars=stars)


def _of_pod(asked: Asked, texts: Mapping[str, str]) -> Iterator[Found]:
    for key, stars in matching(asked.row.key, texts):
        container = _starred(asked, stars)
        if asked.row.star is Star.NOTHING or container is not None:
            yield texts[key], replace(asked, key=key, container=container, stars=stars)


def _starred(asked: Asked, stars: tuple[str, ...]) -> DeclaredContainer | None:
    """Find the container that a key names; None if the pod has no such container."""
    if not stars or asked.row.star is Star.NOTHING:
        return None
    if asked.row.star is Star.CONTAINER:
        return asked.scene.pod.container(stars[0])
    numbered = {str(index): container for index, container in enumerate(asked.scene.pod.regular)}
    return numbered.get(stars[0])


def _of_claims(asked: Asked) -> Iterator[Found]:
    for claim in used(asked.scene.pod, asked.scene.claims):
        for device in claim.devices:
            if asked.row.driver not in ("", device.driver):
                continue
            text = device.device if asked.row.key == _DEVICE else device.consumed.get(asked.row.key)
            if text is not None:
                yield text, replace(asked, claim=claim, claimed=(device,))


def _of_configs(asked: Asked) -> Iterator[Found]:
    for claim in used(asked.scene.pod, asked.scene.claims):
        for config in claim.configs:
            if asked.row.driver not in ("", config.driver):
                continue
            text = _at(config.parameters, asked.row.key)
            devices = tuple(
                device
                for device in claim.devices
                if device.driver == config.driver and (not config.requests or _main(device.request) in config.requests)
            )
            if text is not None:
                for container in using(asked.scene.pod, claim, devices):
                    yield text, replace(asked, claim=claim, claimed=devices, container=container)


def used(pod: DeclaredPod, claims: Iterable[Claim]) -> list[Claim]:
    """List the claims that the pod uses."""
    mine = set(pod.claims.values())
    return [claim for claim in claims if claim.namespace == pod.namespace and claim.name in mine]


def using(pod: DeclaredPod, claim: Claim, devices: tuple[ClaimedDevice, ...]) -> list[DeclaredContainer]:
    """List the containers that use these devices of the claim."""
    names = {own for own, name in pod.claims.items() if name == claim.name}
    requests = {_main(device.request) for device in devices}
    return [
        container
        for container in pod.containers
        if any(use.name in names and (not use.request or use.request in requests) for use in container.claims)
    ]


def _main(request: str) -> str:
    """Return the request as users name it: a prioritized list is allocated as `main/sub`, and users write `main`."""
    return request.partition("/")[0]


def _at(parameters: Mapping[str, object], path: str) -> str | None:
    value: object = parameters
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
