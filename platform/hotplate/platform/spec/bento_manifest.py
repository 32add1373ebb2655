"""Services and models, as the manifest of a bento lists them; pure.

A manifest is what the client registers before it uploads: `bento.yaml` as JSON, checked by
`api.manifests` on its way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def entry_service(manifest: Mapping[str, Any]) -> str:
    """The name of the service that a bento serves to the public."""
    return manifest.get("entry_service") or manifest.get("name") or ""


def dependency_services(manifest: Mapping[str, Any]) -> list[str]:
    """Names of the services that are called by others of the bento only."""
    entry = entry_service(manifest)
    return [s["name"] for s in manifest.get("services") or () if s.get("name") not in (None, entry)]


def service_names(manifest: Mapping[str, Any]) -> list[str]:
    """All services, the entry service first."""
    return [entry_service(manifest), *dependency_services(manifest)]


def model_tags(manifest: Mapping[str, Any]) -> list[str]:
    """`name:version` of every model that a bento names, of all its services."""
    named = [*(manifest.get("models") or ())]
    for service in manifest.get("services") or ():
        named += service.get("models") or ()
    tags = (model if isinstance(model, str) else model["tag"] for model in named)
    return list(dict.fromkeys(tags))
