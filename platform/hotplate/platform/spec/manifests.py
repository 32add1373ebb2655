"""Checks the manifest of a bento or model before it is kept; pure.

The controller and every bentoml client read it later, and none of them could say then who sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotplate.platform.errors import Invalid
from hotplate.platform.spec.bento_manifest import entry_service
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.spec.names import check_deployment_name
from hotplate.platform.spec.variables import variables

NAMED_MAX = 100
"""Deployments that a bento calls by name: gateways know for each replica which it may call."""
SERVICE_NAME_MAX = 128
"""A replica's folder has it in its name, which may have 255 characters."""


def checked_bento(fields: Fields) -> Mapping[str, Any]:
    """The object `manifest` of a version of a bento. Raises Invalid."""
    manifest = _checked(fields)
    manifest.flag("dev")
    manifest.text("service")
    _check_models(manifest)
    variables(manifest)
    for _ in manifest.fields("schema").items("routes"):
        pass
    _check_services(manifest, fields.mapping("manifest"))
    return fields.mapping("manifest")


def checked_model(fields: Fields) -> Mapping[str, Any]:
    """The object `manifest` of a version of a model. Raises Invalid."""
    manifest = _checked(fields)
    manifest.text("module", "")
    manifest.text("api_version")
    return fields.mapping("manifest")


def _checked(fields: Fields) -> Fields:
    """What both have."""
    manifest = fields.fields("manifest")
    manifest.text("bentoml_version")
    if manifest.number("size_bytes") is None:
        raise Invalid(f"{manifest.at('size_bytes')}: it is missing")
    return manifest


def _check_services(manifest: Fields, values: Mapping[str, Any]) -> None:
    entry, names = manifest.text("entry_service", ""), []
    for service in manifest.items("services"):
        name = service.text("name")
        if name in names:
            raise Invalid(f"{service.at('name')}: {name!r:.80} is there twice")
        if not name.isprintable():
            raise Invalid(
                f"{service.at('name')}: {name!r:.80} has a character that cannot be printed; "
                "leave that out"
            )
        if len(name) > SERVICE_NAME_MAX:
            raise Invalid(
                f"{service.at('name')}: {name[:20]!r}… has {len(name)} characters, "
                f"more than {SERVICE_NAME_MAX}"
            )
        service.mapping("config")
        _check_models(service)
        names.append(name)
    _check_named(manifest)
    for service in manifest.items("services"):
        for dependency in service.items("dependencies"):
            called = dependency.text("service", "")
            if called and called not in names:
                raise Invalid(
                    f"{dependency.at('service')}: the bento has no such service"
                    f"{suggestion(called, names)}"
                )
    if names and entry_service(values) not in names:
        raise Invalid(
            f"{manifest.at('entry_service')}: the bento has no such service"
            f"{suggestion(entry, names)}"
        )


def _check_named(manifest: Fields) -> None:
    """The deployments that its services call by name."""
    named = set()
    for service in manifest.items("services"):
        for dependency in service.items("dependencies"):
            if name := dependency.text("deployment", ""):
                check_deployment_name(dependency.at("deployment"), name)
                named.add(name)
            dependency.text("cluster", "")
            dependency.text("url", "")
    if len(named) > NAMED_MAX:
        raise Invalid(
            f"{manifest.at('services')}: they depend on {len(named)} deployments by name, "
            f"more than {NAMED_MAX}"
        )


def _check_models(fields: Fields) -> None:
    """Tags as strings (of the whole bento) or in objects (of one service)."""
    for index, model in enumerate(fields.values("models")):
        path = f"{fields.at('models')}[{index}]"
        tag = model if isinstance(model, str) else Fields(model, path).text("tag")
        if ":" not in tag:
            raise Invalid(f"{path}: {tag!r:.80} is not a tag of the form name:version")
