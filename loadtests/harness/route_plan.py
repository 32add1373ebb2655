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
    neighbours: int = 0
    """Other deployments at the same address, each chosen by its host."""


class RoutesFile:
    def __init__(self, path: Path, port: int, plan: Plan) -> None:
        self.path = path
        self._port = port
        self._plan = plan

    def write(self, addresses: Sequence[str]) -> None:
        """Names these replicas instead of the former ones."""
        plan = self._plan
        listen = f'listen = "127.0.0.1:{self._port}"'
        lines = [
            'admin = "127.0.0.1:0"',
            *([listen] if plan.neighbours else []),
            "[[deployment]]",
            'name = "bench"',
            'hosts = ["127.0.0.1"]' if plan.neighbours else listen,
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
        for number in range(plan.neighbours):
            lines += ["[[deployment]]", f'name = "other-{number}"', f'hosts = ["{number}.test"]']
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.path)
