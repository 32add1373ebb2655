"""What the processes of a load test are told: one JSON file, and the files that it names.

`loadtests/locustfiles/` reads them without an import of ours, so the keys below are a format.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

PLAN = "plan.json"
DUE = "due.f8"
PAYLOADS = "payloads.bin"
PAYLOAD_BYTES = "payload_bytes.u8"
"""The length of each of them."""
TOKEN = "token"
"""What is sent as `Authorization: Bearer`; where there is no such file, nothing is."""
SAMPLES = "samples-{}.bin"
"""One of each process: its number."""
READY = "ready-{}"
"""Made by each process when it waits for nothing but the plan."""
COMPLAINTS = "complaints-{}.jsonl"
"""The first bodies of answers that were no success, of each process: `{"status", "text"}`."""

Kind = Literal["call", "stream", "task"]


@dataclass(frozen=True)
class LoadPlan:
    """A load test as its processes carry it out. All are in one folder, where they write, too."""

    url: str
    """Scheme, host, port and the path of the deployment, without a slash at the end."""
    route: str
    """The path of the method, from its slash on."""
    kind: Kind
    """`stream` measures each event; `task` submits, asks for the status and fetches the result."""
    duration_s: float
    started_at: float
    """Seconds since 1970 at which second 0 is, later than now: all processes wait for it."""
    users: int = 0
    """Closed loop: how many ask again as soon as they are answered, each from its own time in
    `due.f8` on; 0 = open loop: a request at each time in `due.f8`."""
    processes: int = 1
    """Number i of `due.f8`, a request or a user, is process i modulo this one's."""
    organization_header: str = ""
    organizations: tuple[str, ...] = ()
    """Their names; empty = the header is not sent."""
    turns: tuple[int, ...] = ()
    """Request number i (of a closed loop: user number i) is of organization
    `turns[i % len(turns)]`."""
    seed: int = 0
    timeout_s: float = 300.0
    """How long one request may take in all."""
    content_type: str = "application/json"
    """Of every payload."""


def write(
    folder: Path,
    plan: LoadPlan,
    due_s: Sequence[float],
    payloads: Sequence[bytes],
    token: str = "",
) -> None:
    """Writes the plan with its files. `due_s` are seconds from second 0 on, in order; `payloads`
    are taken in turn: the body of request number i is `payloads[i % len(payloads)]`. The folder is
    its user's only. Raises OSError.

    Processes that run already, and are ready, begin with it."""
    if token:
        (folder / TOKEN).write_text(token)
    (folder / DUE).write_bytes(array("d", due_s).tobytes())
    (folder / PAYLOADS).write_bytes(b"".join(payloads))
    (folder / PAYLOAD_BYTES).write_bytes(array("Q", map(len, payloads)).tobytes())
    whole = folder / f"{PLAN}.new"
    whole.write_text(json.dumps(asdict(plan)))
    whole.replace(folder / PLAN)
