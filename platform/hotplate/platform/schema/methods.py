"""The methods that a bento's `/schema.json` lists; pure.

Schemas are a bento's, so anybody's: whatever does not fit is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hotplate.platform.schema.sample_input import Schema


@dataclass(frozen=True)
class ServiceMethod:
    """One method of a service, as callers reach it."""

    name: str
    route: str
    """Its path, below the service's prefix."""
    doc: str
    streams: bool
    is_task: bool
    input: Schema

    @property
    def root(self) -> bool:
        """Whether its one argument is the whole body."""
        return bool(self.input.get("root_input"))


def mounted_paths(schema: object) -> list[str]:
    """The routes of the service's mounted applications."""
    paths = schema.get("paths") if isinstance(schema, Mapping) else None
    if not isinstance(paths, Mapping):
        return []
    return [
        str(path)
        for path, about in paths.items()
        if isinstance(about, Mapping) and about.get("mounted")
    ]


def service_methods(schema: object) -> Iterator[ServiceMethod]:
    """In the order of the schema."""
    routes = schema.get("routes") if isinstance(schema, Mapping) else None
    for route in routes if isinstance(routes, list) else ():
        if not isinstance(route, Mapping) or not isinstance(route.get("route"), str):
            continue
        given, output = route.get("input"), route.get("output")
        yield ServiceMethod(
            name=str(route.get("name") or ""),
            route=route["route"],
            doc=str(route.get("doc") or ""),
            streams=isinstance(output, Mapping) and bool(output.get("is_stream")),
            is_task=bool(route.get("is_task")),
            input=given if isinstance(given, Mapping) else {},
        )
