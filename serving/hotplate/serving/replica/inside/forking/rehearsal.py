"""What BentoML makes when it first reads a bento and first sees a method, made before a process is
forked. Python >= 3.9, the standard library and bentoml.

It is code that its libraries compile for their classes, and nothing that depends on the bento.
"""

from __future__ import annotations

import io
from contextlib import suppress

BENTO = """
name: rehearsal
version: v1
service: rehearsal:Rehearsal
bentoml_version: 1.4.0
creation_time: 2026-01-01T00:00:00+00:00
labels: {some: label}
models: [{tag: "a:v1", module: "", creation_time: 2026-01-01T00:00:00+00:00}]
entry_service: Rehearsal
services:
- name: Rehearsal
  service: ""
  models: [{tag: "a:v1", module: "", creation_time: 2026-01-01T00:00:00+00:00}]
  dependencies: [{service: Other}]
  config: {threads: 2}
envs: [{name: SOME, value: ""}]
schema: {}
args: {}
spec: 2
image: {base_image: "", python_version: "3.11", commands: [], python_requirements: ""}
"""
CONFIGURATION_VERSION = 2
"""That which services apply."""


def rehearse() -> None:
    """Reads a bento that serves nothing."""
    with suppress(Exception):  # another BentoML, which does that in the replica
        from bentoml._internal.bento.bento import BaseBentoInfo

        BaseBentoInfo.from_yaml_file(io.StringIO(BENTO))
    with suppress(Exception):
        from bentoml._internal.configuration import containers

        containers.get_default_config(version=CONFIGURATION_VERSION)
    with suppress(Exception):
        import bentoml

        bentoml.api(_method)


def _method(self: object, text: str = "", number: int = 0) -> str:
    return text * number
