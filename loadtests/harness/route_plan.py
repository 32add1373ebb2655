"""The file of routes of a gateway without a control plane: one deployment, edited while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ORGANIZATION = "X-Organization"
"""The header in which callers name their organization."""


@dataclass(frozen=True)
class Plan:
    """How requests are to be served."""

    slots: int
    """Of each replica."""
    replicas: int = 1
    named: int | None = None
    """How many of them the proxy knows at first; None = all."""
    timeout_s: float = 60.0
    queue_limit: int = 1000
    """How many requests wait at most."""
    streams: bool = False
    """Responses are streams, of which each piece must be sent at once."""
    weights: Mapping[str, float] = field(default_factory=dict)


class RoutesFile:
    def __init__(self, path: Path, port: int, plan: Plan) -> None:
        self.path = path
        self._port = port
        self._plan = plan

    def write(self, addresses: Sequence[str]) -> None:
        """Names these replicas instead of the former ones."""
        plan = self._plan
        lines = [
            'admin = "127.0.0.1:0"',
            "[[deployment]]",
            'name = "bench"',
            f'listen = "127.0.0.1:{self._port}"',
            f"timeout_s = {plan.timeout_s}",
            f"queue_limit = {plan.queue_limit}",
            f'organization_header = "{ORGANIZATION}"',
            "[deployment.weights]",
            *(f"{organization} = {weight}" for organization, weight in plan.weights.items()),
        ]
        for address in addresses:
            lines.append("[[deployment.replica]]")
            lines.append(f'address = "{address}"')
            lines.append(f"concurrency = {plan.slots}")
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.path)
