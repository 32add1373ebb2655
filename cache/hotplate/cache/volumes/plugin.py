"""What kubelet asks of the agent: a CSI node plugin, and the socket by which it finds it.

Imported only by an agent that has a kubelet: it needs the packages of the extra `kubernetes`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from hotplate.cache.errors import BadVolume, CacheError, NoSpace, TicketRefused, VolumeNotReady
from hotplate.cache.volumes.claim import checked, checked_place, pod_of
from hotplate.cache.volumes.messages import CSI, REGISTRATION
from hotplate.cache.volumes.publishing import Volumes
from hotplate.cache.volumes.ticket import DRIVER

log = logging.getLogger(__name__)

VERSION = "1.0.0"
STOP_S = 1.0
_CODES: dict[type[Exception], grpc.StatusCode] = {
    TicketRefused: grpc.StatusCode.PERMISSION_DENIED,
    BadVolume: grpc.StatusCode.INVALID_ARGUMENT,
    NoSpace: grpc.StatusCode.RESOURCE_EXHAUSTED,
    VolumeNotReady: grpc.StatusCode.DEADLINE_EXCEEDED,
    OSError: grpc.StatusCode.INTERNAL,
}
"""What is not here may be over soon (`UNAVAILABLE`). Kubelet asks again in any case."""

Answer = Callable[[Any], Awaitable[Any]]


class Plugin:
    """Answers kubelet."""

    def __init__(self, volumes: Volumes, key: bytes) -> None:
        """`key` signs tickets."""
        self._volumes = volumes
        self._key = key

    async def publish(self, request: Any) -> Any:
        """Mounts a volume."""
        attributes = dict(request.volume_context)
        asked = (request.volume_id, request.target_path, attributes)
        try:
            claim = checked(*asked, self._volumes.kubelet, self._key)
        except CacheError as error:
            self._volumes.refuse(pod_of(attributes), error)
            raise
        await self._volumes.publish(claim)
        return CSI["NodePublishVolumeResponse"]()

    async def unpublish(self, request: Any) -> Any:
        place = checked_place(request.volume_id, request.target_path, self._volumes.kubelet)
        await self._volumes.unpublish(*place)
        return CSI["NodeUnpublishVolumeResponse"]()

    async def node(self, _: Any) -> Any:
        return CSI["NodeGetInfoResponse"](node_id=self._volumes.kubelet.node)

    async def identity(self, _: Any) -> Any:
        return CSI["GetPluginInfoResponse"](name=DRIVER, vendor_version=VERSION)

    async def registration(self, _: Any) -> Any:
        """Tells kubelet where the plugin is."""
        return REGISTRATION["PluginInfo"](
            type="CSIPlugin",
            name=DRIVER,
            endpoint=str(self._volumes.kubelet.socket),
            supported_versions=[VERSION],
        )

    async def registered(self, request: Any) -> Any:
        if request.plugin_registered:
            log.info("kubelet takes volumes from here")
        else:
            log.error("kubelet takes no volumes from here: %s", request.error)
        return REGISTRATION["RegistrationStatusResponse"]()


@contextlib.asynccontextmanager
async def serving(volumes: Volumes, key: bytes) -> AsyncIterator[None]:
    """Lets kubelet find the plugin and ask it, for the time of the block. Raises CacheError."""
    plugin, kubelet = Plugin(volumes, key), volumes.kubelet
    asked = {
        "csi.v1.Identity": {
            "GetPluginInfo": (plugin.identity, "GetPluginInfoRequest"),
            "GetPluginCapabilities": _nothing("GetPluginCapabilities"),
            "Probe": _nothing("Probe"),
        },
        "csi.v1.Node": {
            "NodePublishVolume": (plugin.publish, "NodePublishVolumeRequest"),
            "NodeUnpublishVolume": (plugin.unpublish, "NodeUnpublishVolumeRequest"),
            "NodeGetInfo": (plugin.node, "NodeGetInfoRequest"),
            "NodeGetCapabilities": _nothing("NodeGetCapabilities"),
        },
    }
    found = {
        "pluginregistration.Registration": {
            "GetInfo": (plugin.registration, "InfoRequest"),
            "NotifyRegistrationStatus": (plugin.registered, "RegistrationStatus"),
        }
    }
    async with (
        _listening(kubelet.socket, asked, CSI),
        _listening(kubelet.registration, found, REGISTRATION),
    ):
        yield


def _nothing(name: str) -> tuple[Answer, str]:
    """The answer that there is nothing to tell."""

    async def answer(_: Any) -> Any:
        return CSI[f"{name}Response"]()

    return answer, f"{name}Request"


@contextlib.asynccontextmanager
async def _listening(
    path: Path, services: Mapping[str, Mapping[str, tuple[Answer, str]]], messages: dict[str, Any]
) -> AsyncIterator[None]:
    server = grpc.aio.server()
    for service, methods in services.items():
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(
                _answering(answer),
                request_deserializer=messages[request].FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for method, (answer, request) in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        os.makedirs(path.parent, mode=0o750, exist_ok=True)
        server.add_insecure_port(f"unix:{path}")
    except (OSError, RuntimeError) as error:
        raise CacheError(f"the agent cannot listen at {path} ({error}); check --kubelet") from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(STOP_S)


def _answering(answer: Answer) -> Callable[[Any, Any], Awaitable[Any]]:
    """The same, with errors as kubelet shows them in the pod's events: one sentence."""

    async def answered(request: Any, context: Any) -> Any:
        try:
            return await answer(request)
        except (CacheError, OSError) as error:
            codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
            await context.abort(next(codes, grpc.StatusCode.UNAVAILABLE), str(error))

    return answered
