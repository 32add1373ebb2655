"""The messages of CSI 1 and of kubelet's plugin registration 1, as far as the agent uses them.

They are described here rather than compiled, since that needs a compiler and writes files that
nobody reads. What is not described is skipped when it is received.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TEXT, _FLAG, _MAP, _TEXTS = "text", "flag", "map", "texts"
_CSI: dict[str, dict[str, tuple[int, str]]] = {
    "GetPluginInfoRequest": {},
    "GetPluginInfoResponse": {"name": (1, _TEXT), "vendor_version": (2, _TEXT)},
    "GetPluginCapabilitiesRequest": {},
    "GetPluginCapabilitiesResponse": {},
    "ProbeRequest": {},
    "ProbeResponse": {},
    "NodeGetCapabilitiesRequest": {},
    "NodeGetCapabilitiesResponse": {},
    "NodeGetInfoRequest": {},
    "NodeGetInfoResponse": {"node_id": (1, _TEXT)},
    "NodePublishVolumeRequest": {
        "volume_id": (1, _TEXT),
        "target_path": (4, _TEXT),
        "readonly": (6, _FLAG),
        "volume_context": (8, _MAP),
    },
    "NodePublishVolumeResponse": {},
    "NodeUnpublishVolumeRequest": {"volume_id": (1, _TEXT), "target_path": (2, _TEXT)},
    "NodeUnpublishVolumeResponse": {},
}
_REGISTRATION: dict[str, dict[str, tuple[int, str]]] = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, _TEXT),
        "name": (2, _TEXT),
        "endpoint": (3, _TEXT),
        "supported_versions": (4, _TEXTS),
    },
    "RegistrationStatus": {"plugin_registered": (1, _FLAG), "error": (2, _TEXT)},
    "RegistrationStatusResponse": {},
}
_FIELD = descriptor_pb2.FieldDescriptorProto


def _described(package: str, messages: dict[str, dict[str, tuple[int, str]]]) -> dict[str, Any]:
    """The classes of a package's messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"hotplate/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, f".{package}.{name}", field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


def _add_field(message: Any, above: str, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    field.type = _FIELD.TYPE_BOOL if kind == _FLAG else _FIELD.TYPE_STRING
    if kind in (_MAP, _TEXTS):
        field.label = _FIELD.LABEL_REPEATED
    if kind == _MAP:
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f"{above}.{entry_name}"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for place, part in enumerate(("key", "value"), 1):
            _add_field(entry, "", part, place, _TEXT)


CSI = _described("csi.v1", _CSI)
REGISTRATION = _described("pluginregistration", _REGISTRATION)
