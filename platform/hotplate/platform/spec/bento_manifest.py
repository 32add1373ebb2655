"""Services and models, as the manifest of a bento lists them; pure.

A manifest is what the client registers before it uploads: `bento.yaml` as JSON, checked by
`api.manifests` on its way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NamedDeployment:
    """A deployment that a service calls: `bentoml.depends(deployment=…, cluster=…)`."""

    name: str
    cluster: str = ""
    """Empty = the installation itself."""


def entry_service(manifest: Mapping[str, Any]) -> str:
    """The name of the service that a bento serves to the public."""
    return manifest.get("entry_service") or manifest.get("name") or ""


def services_run(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The services that replicas run, as the manifest describes them: not those that stand there
    only because a service calls them in another deployment or by URL, as BentoML starts none of
    these either."""
    services = {s["name"]: s for s in manifest.get("services") or () if s.get("name")}
    named = {d.get("service") for s in services.values() for d in _dependencies(s)}
    found: set[str] = set()
    pending = [entry_service(manifest), *(name for name in services if name not in named)]
    while pending:
        name = pending.pop()
        if name not in found and name in services:
            found.add(name)
            pending += called_services(services[name])
    return [described for name, described in services.items() if name in found]


def called_services(service: Mapping[str, Any]) -> list[str]:
    """Names of the services of its own bento that a service calls."""
    called = (d.get("service") for d in _dependencies(service) if not _is_remote(d))
    return [name for name in called if name]


def _is_remote(dependency: Mapping[str, Any]) -> bool:
    """Whether it is called in another deployment, or by URL."""
    return bool(dependency.get("deployment") or dependency.get("url"))


def named_deployments(manifest: Mapping[str, Any]) -> list[NamedDeployment]:
    """The deployments that services of a bento call by name, each once."""
    named = (
        NamedDeployment(dependency["deployment"], dependency.get("cluster") or "")
        for service in manifest.get("services") or ()
        for dependency in _dependencies(service)
        if dependency.get("deployment")
    )
    return list(dict.fromkeys(named))


def _dependencies(service: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return service.get("dependencies") or ()


def dependency_services(manifest: Mapping[str, Any]) -> list[str]:
    """Names of the services that are called by others of the bento only."""
    entry = entry_service(manifest)
    return [service["name"] for service in services_run(manifest) if service["name"] != entry]


def service_names(manifest: Mapping[str, Any]) -> list[str]:
    """All services that it lists, the entry service first."""
    entry = entry_service(manifest)
    others = (s["name"] for s in manifest.get("services") or () if s.get("name"))
    return [entry, *(name for name in others if name != entry)]


def model_tags(manifest: Mapping[str, Any]) -> list[str]:
    """`name:version` of every model that a bento names, of all its services."""
    named = [*(manifest.get("models") or ())]
    for service in manifest.get("services") or ():
        named += service.get("models") or ()
    tags = (model if isinstance(model, str) else model["tag"] for model in named)
    return list(dict.fromkeys(tags))
