"""The service of a replica: loaded with its configuration, and made ready once per replica.

Python >= 3.9, the standard library and bentoml.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from hotplate.serving.replica.inside.reserved import is_reserved, not_used


def load_service(job: dict[str, Any]) -> Any:
    """Loads the service, with its configuration and the variables that it declares. Raises
    ValueError for a declared variable that has no value."""
    from _bentoml_impl.loader import load

    root = load(job["bento"], standalone_load=True)
    service = root.find_dependent_by_name(job["service"])
    service.inject_config()
    _override(service.config, job["overrides"])
    for variable in (*service.envs, *root.envs):
        if variable.stage == "build" or variable.name in os.environ or is_reserved(variable.name):
            continue
        if variable.value:
            os.environ[variable.name] = variable.value
        elif variable in service.envs:
            raise ValueError(
                f"The service {service.name} needs a value for {variable.name}; "
                "set it in the deployment's envs."
            )
    return service


def _override(config: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Applies overrides in place, because BentoML reads threads, endpoints and the proxy's port
    only from the author's configuration."""
    for key, value in overrides.items():
        below = config.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _override(below, value)
        else:
            config[key] = value


def warn(service: Any, job: dict[str, Any], concurrency: int | None) -> None:
    """Prints what may surprise the author."""
    reserved = {each.name for each in service.envs if is_reserved(each.name)}
    for note in sorted({*map(not_used, reserved)} - {*job["notes"]}):
        print(note, file=sys.stderr)  # of a service that no manifest tells the variables of
    batched = sorted(name for name, api in service.apis.items() if api.batchable)
    if batched and concurrency == 1:
        print(
            f"{service.name} gets one request at a time, so {', '.join(batched)} will never see "
            "a batch of several; set traffic.concurrency to as many as should wait for a batch.",
            file=sys.stderr,
        )


def prepare_deployment(service: Any) -> None:
    """Prepares the deployment, once per replica: models, deployment hooks, the database of
    tasks."""
    from _bentoml_impl.server.serving import server_on_deployment

    server_on_deployment(service)
    if service.has_custom_command():
        _wait_for_whole_models()


def _wait_for_whole_models() -> None:
    """Opens every file, which waits until it can be read: the program behind a custom command opens
    files without us. With a file view none has to be waited for."""
    for folder, _, names in os.walk(os.environ["HOTPLATE_MODELS"], followlinks=True):
        for name in names:
            with open(os.path.join(folder, name), "rb"):
                pass


def task_submissions(service: Any) -> list[str]:
    """The paths whose response is followed by a task that BentoML runs."""
    from bentoml._internal.utils.uri import join_paths

    return [
        join_paths(service.path_prefix, api.route, ending)
        for api in service.apis.values()
        if api.is_task
        for ending in ("submit", "retry")
    ]
