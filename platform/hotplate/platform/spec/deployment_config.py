"""The settings of a deployment's create or update, checked and with defaults filled in; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hotplate.autoscaler.bentoml_policy import policy_from
from hotplate.autoscaler.errors import ScalingInvalid
from hotplate.platform.errors import Invalid
from hotplate.platform.spec.bento_manifest import service_names
from hotplate.platform.spec.fields import Fields, suggestion
from hotplate.platform.spec.reason_note import without_reason
from hotplate.platform.spec.secret_content import secret_names
from hotplate.platform.spec.service_config import check_overrides, check_service_config, merged
from hotplate.platform.spec.variables import variables
from hotplate.serving.replica.inside.reserved import is_reserved

COLD_START_MAX_S = 365 * 86400
"""Of a start that takes longer, no status could say when it ends."""
CODE_SPACE: Mapping[str, Any] = {
    "scaling": {"min_replicas": 0, "max_replicas": 1, "policy": None},
    "deployment_strategy": "Recreate",
}
"""Of each service of a code space: one replica, which ends before what was saved starts."""
STRATEGIES = ("RollingUpdate", "Recreate", "RampedSlowRollout", "BestEffortControlledRollout")


def deployment_config(
    fields: Fields,
    manifest: Mapping[str, Any],
    instance_types: Collection[str],
    before: Collection[str] = (),
) -> dict[str, Any]:
    """The config of a revision, with every service of the bento. `before` names those of the
    revision that it replaces: the client sends back what it has read, and so what was set for a
    service that the new bento no longer has, which is left out.

    The same request always gives the same config, and so does a config that is sent back: that
    is how a redeploy without a change is seen. Raises Invalid.
    """
    _check_declared(manifest)
    return {
        "access_authorization": fields.flag("access_authorization"),
        "envs": _envs(fields),
        "secrets": secret_names(fields),
        "services": _services(fields, manifest, instance_types, before),
    }


def _services(
    fields: Fields,
    manifest: Mapping[str, Any],
    instance_types: Collection[str],
    before: Collection[str],
) -> dict[str, Any]:
    asked, names = fields.fields("services"), service_names(manifest)
    for name in fields.mapping("services"):
        if name not in names and name not in before:
            raise Invalid(
                f"{asked.at(name)}: the bento has no such service{suggestion(name, names)}"
            )
    written = {each.get("name"): each.get("config") for each in manifest.get("services") or ()}
    services: dict[str, Any] = {}
    for name in names:
        services[name] = _service(asked.fields(name), asked.at(name), instance_types)
        authored, overrides = written.get(name) or {}, services[name]["config_overrides"]
        check_service_config(merged(authored, overrides), f"{asked.at(name)}.config")
        check_overrides(overrides, f"{asked.at(name)}.config_overrides", authored)
        if not asked.fields(name).has("scaling"):
            # With flags the client names the entry service only: the others scale like it.
            services[name]["scaling"] = services[names[0]]["scaling"]
        if manifest.get("dev") is True:
            services[name] |= CODE_SPACE
    return services


def _service(fields: Fields, path: str, instance_types: Collection[str]) -> dict[str, Any]:
    return {
        "instance_type": _instance_type(fields, path, instance_types),
        "scaling": _scaling(fields, path),
        "envs": _envs(fields),
        "deployment_strategy": fields.choice("deployment_strategy", STRATEGIES),
        "cold_start_timeout": fields.number("cold_start_timeout", low=1, high=COLD_START_MAX_S),
        "config_overrides": dict(fields.mapping("config_overrides")),
        "extras": without_reason(fields) or None,
    }


def _envs(fields: Fields) -> list[dict[str, str]]:
    pairs = variables(fields)
    for index, pair in enumerate(pairs):
        if is_reserved(pair["name"]):
            raise Invalid(
                f"{fields.at('envs')}[{index}].name: {pair['name']!r} is the platform's own in "
                "every replica, so it cannot be set; remove it"
            )
    return pairs


def _check_declared(manifest: Mapping[str, Any]) -> None:
    """The client may copy what the author declares into the deployment's envs, so that comes
    first. Of the services that others call a manifest tells no variables: their log does."""
    for item in manifest.get("envs") or ():
        if is_reserved(item["name"]) and item.get("stage") != "build":
            raise Invalid(
                f"bento: its service declares {item['name']!r} in envs, which is the platform's "
                "own in every replica; remove it from the envs of @bentoml.service and build the "
                "bento again"
            )


def _instance_type(fields: Fields, path: str, types: Collection[str]) -> str | None:
    asked = fields.text("instance_type", "") if fields.has("instance_type") else ""
    kind, _, count = asked.rpartition(".")
    alike = {
        int(number): name
        for name in types
        for same, _, number in [name.rpartition(".")]
        if same == kind and number.isdecimal()
    }
    if alike and count.isdecimal() and float(count) > max(alike):
        raise Invalid(
            f"{path}.instance_type: {asked!r:.80} does not exist, since no machine here is that "
            f"large; the largest is {alike[max(alike)]!r}"
        )
    return fields.choice("instance_type", types)


def _scaling(fields: Fields, path: str) -> dict[str, Any]:
    """The client sends 1 and 1 where the user says nothing; so do we where it sends nothing."""
    scaling = fields.mapping("scaling")
    try:
        # How many slots a replica has says nothing about whether the block can be followed.
        checked = policy_from(scaling, concurrency=1)
    except ScalingInvalid as error:
        raise Invalid(f"{path}.{error}") from error
    policy = {
        key: value for key, value in (scaling.get("policy") or {}).items() if value is not None
    }
    return {
        "min_replicas": checked.min_replicas,
        "max_replicas": checked.max_replicas,
        "policy": policy or None,
    }
