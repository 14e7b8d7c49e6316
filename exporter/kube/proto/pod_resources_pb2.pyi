from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("pod_resources",)
    POD_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    pod_resources: _containers.RepeatedCompositeFieldContainer[PodResources]
    def __init__(self, pod_resources: _Iterable[PodResources | _Mapping] | None = ...) -> None: ...

class AllocatableResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[ContainerDevices]
    def __init__(self, devices: _Iterable[ContainerDevices | _Mapping] | None = ...) -> None: ...

class PodResources(_message.Message):
    __slots__ = ("containers", "name", "namespace")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    namespace: str
    containers: _containers.RepeatedCompositeFieldContainer[ContainerResources]
    def __init__(
        self,
        name: str | None = ...,
        namespace: str | None = ...,
        containers: _Iterable[ContainerResources | _Mapping] | None = ...,
    ) -> None: ...

class ContainerResources(_message.Message):
    __slots__ = ("devices", "dynamic_resources", "name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    devices: _containers.RepeatedCompositeFieldContainer[ContainerDevices]
    dynamic_resources: _containers.RepeatedCompositeFieldContainer[DynamicResource]
    def __init__(
        self,
        name: str | None = ...,
        devices: _Iterable[ContainerDevices | _Mapping] | None = ...,
        dynamic_resources: _Iterable[DynamicResource | _Mapping] | None = ...,
    ) -> None: ...

class ContainerDevices(_message.Message):
    __slots__ = ("device_ids", "resource_name")
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
    resource_name: str
    device_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, resource_name: str | None = ..., device_ids: _Iterable[str] | None = ...) -> None: ...

class DynamicResource(_message.Message):
    __slots__ = ("claim_name", "claim_namespace", "claim_resources")
    CLAIM_NAME_FIELD_NUMBER: _ClassVar[int]
    CLAIM_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    claim_name: str
    claim_namespace: str
    claim_resources: _containers.RepeatedCompositeFieldContainer[ClaimResource]
    def __init__(
        self,
        claim_name: str | None = ...,
        claim_namespace: str | None = ...,
        claim_resources: _Iterable[ClaimResource | _Mapping] | None = ...,
    ) -> None: ...

class ClaimResource(_message.Message):
    __slots__ = ("cdi_devices", "device_name", "driver_name", "pool_name", "share_id")
    CDI_DEVICES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_NAME_FIELD_NUMBER: _ClassVar[int]
    POOL_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_ID_FIELD_NUMBER: _ClassVar[int]
    cdi_devices: _containers.RepeatedCompositeFieldContainer[CDIDevice]
    driver_name: str
    pool_name: str
    device_name: str
    share_id: str
    def __init__(
        self,
        cdi_devices: _Iterable[CDIDevice | _Mapping] | None = ...,
        driver_name: str | None = ...,
        pool_name: str | None = ...,
        device_name: str | None = ...,
        share_id: str | None = ...,
    ) -> None: ...

class CDIDevice(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: str | None = ...) -> None: ...
