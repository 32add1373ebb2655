"""The reason of a status where `bentoml deployment get` prints it: as an annotation; pure.

The client shows of a deployment what it knows, and knows no reason. Among the extras of a service
are annotations of any name, which it prints, and sends back when it changes the deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.platform.spec.fields import Fields

REASON = "hotplate/reason"
_OVERRIDES, _ANNOTATIONS = "bento_function_overrides", "annotations"


def with_reason(services: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """A config's services, with the reason at the first one."""
    noted = dict(services)
    if reason and noted:
        name = next(iter(noted))
        extras = dict(noted[name].get("extras") or {})
        overrides = dict(extras.get(_OVERRIDES) or {})
        annotations = {**(overrides.get(_ANNOTATIONS) or {}), REASON: reason}
        extras[_OVERRIDES] = {**overrides, _ANNOTATIONS: annotations}
        noted[name] = {**noted[name], "extras": extras}
    return noted


def without_reason(service: Fields) -> dict[str, Any]:
    """The extras of a service in a request, as they were before. Raises Invalid."""
    extras = dict(service.mapping("extras"))
    overrides = dict(service.fields("extras").mapping(_OVERRIDES))
    annotations = dict(service.fields("extras").fields(_OVERRIDES).mapping(_ANNOTATIONS))
    if REASON not in annotations:
        return extras
    del annotations[REASON]
    overrides[_ANNOTATIONS] = annotations or None
    extras[_OVERRIDES] = {key: value for key, value in overrides.items() if value} or None
    return {key: value for key, value in extras.items() if value}
