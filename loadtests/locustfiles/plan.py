"""The folder that tells the processes of `hotplate loadtest` what to do."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any


class Plan:
    """`plan.json` by its keys, and the files beside it."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError, ValueError, KeyError."""
        told: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        self.folder = folder
        self.url: str = told["url"]
        self.route: str = told["route"]
        self.kind: str = told["kind"]
        self.duration_s: float = told["duration_s"]
        self.started_at: float = told["started_at"]
        self.users: int = told["users"]
        self.processes: int = told["processes"]
        self.organization_header: str = told["organization_header"]
        self.organizations: list[str] = told["organizations"]
        self.turns: list[int] = told["turns"] or [0]
        self.timeout_s: float = told["timeout_s"]
        token = folder / "token"
        self.token = token.read_text().strip() if token.exists() else ""
        self.due_s = array("d", (folder / "due.f8").read_bytes())
        self.content_type: str = told["content_type"]
        sizes = array("Q", (folder / "payload_bytes.u8").read_bytes())
        with (folder / "payloads.bin").open("rb") as file:
            self.payloads = [file.read(size) for size in sizes] or [b"{}"]
