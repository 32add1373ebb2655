"""The notes of `hotplate up` on itself and on each role, kept in the data directory for later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hotplate.deploy.phases import unix_now
from hotplate.deploy.process.procfs import is_running, start_time_of
from hotplate.platform.processes.data_dir import DataDir

SUPERVISOR = "up"
ROLES = ("agent", "gateway", "control-plane", "control-plane-2")

_CUT = {
    "agent": "replicas went on and no request was interrupted; starting replicas wait for it",
    "gateway": "its requests were interrupted, and can be sent again",
    "control-plane": "replicas and gateway went on and no request was interrupted; an unfinished "
    "upload or deploy can be sent again",
    "control-plane-2": "no request was interrupted, and the other control plane acts, or does so "
    "within seconds; an unfinished upload or deploy can be sent again",
}


@dataclass(frozen=True)
class RoleState:
    """One process of the platform. Times are Unix seconds."""

    name: str
    pid: int
    start_time: str
    argv: tuple[str, ...]
    since: float
    restarts: int = 0
    last_end: str = ""
    """How the one before it ended, if that was not asked of it."""

    @staticmethod
    def of_new(
        name: str,
        pid: int,
        argv: Sequence[str],
        before: RoleState | None = None,
        last_end: str = "",
    ) -> RoleState:
        """A process that runs from now on; of a role that ended by itself, `last_end` says how."""
        restarts = before.restarts + 1 if before is not None and last_end else 0
        return RoleState(name, pid, start_time_of(pid), tuple(argv), unix_now(), restarts, last_end)

    @staticmethod
    def noted(data: DataDir, name: str) -> RoleState | None:
        """The last note on a role; None if there is none that can be read."""
        try:
            noted = data.noted(name)
            return RoleState(**noted | {"argv": tuple(noted["argv"])})
        except (TypeError, KeyError):
            return None

    def note(self, data: DataDir) -> None:
        data.note(self.name, asdict(self))

    @property
    def runs(self) -> bool:
        return is_running(self.pid, self.start_time)

    def as_json(self) -> dict[str, Any]:
        shown = ("name", "pid", "since", "restarts", "last_end")
        return {key: getattr(self, key) for key in shown} | {"runs": self.runs}


def role_states(data: DataDir) -> list[RoleState]:
    """`up` and the roles that have ever run on this data directory."""
    noted = (RoleState.noted(data, name) for name in (SUPERVISOR, *ROLES))
    return [state for state in noted if state is not None]


def end_of(role: str, how: str) -> str:
    """The sentence about a role that was not asked to end."""
    return f"the {role} has ended: {how}; {_CUT[role]}; it is started again"
