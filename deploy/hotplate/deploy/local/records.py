"""What is kept on disk of local replicas, so that the next engine can adopt them.

<dir>/replicas/<id>/state.json    the record: workload without its variables, process, place, phases
<dir>/replicas/<id>/log           output of its processes
<dir>/replicas/<id>/groups        folders of its control groups, one a line
<dir>/replicas/<id>/born          the folder, its process's marker, of the standby that this was, or
                                  of the template that has forked it
<dir>/replicas/<id>/socket        where it listens; its process has the socket, and not the file
<dir>/replicas/<id>/work/         the runtime's; empty at the start of each attempt
<dir>/ended/                      logs of replicas that are gone (`ended_logs`)
<dir>/leavings/<id>/              folders of replicas that are gone, to be removed
<dir>/standbys/<id>/              of a standby: log, work/; goes with the replica that it becomes
<dir>/standbys.json               what standbys are for, and when they were needed
<dir>/memory.json                 what new replicas of each service have taken of the memory
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotplate.deploy.local.ended_logs import EndedLogs
from hotplate.deploy.local.placement import Place
from hotplate.deploy.phases import Phase
from hotplate.deploy.workload import Model, Resources, Workload, WorkloadKey
from hotplate.machine.foreign_folder import ForeignFolder, remove_tree

MOST_MOVED = 1000
"""Files that a standby's process may take along: it has a few."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One replica with a process."""

    id: str
    pid: int
    start_time: str
    workload: Workload
    place: Place
    address: str
    ready_path: str
    restarts: int
    created_at: float
    spawned_at: float
    ready_at: float | None
    phases: tuple[Phase, ...]
    stopping: bool = False
    """It was told to end: it answers nothing new, whatever its process still does."""


class Records:
    """The state directory of one engine. Private to the user: logs and files may hold secrets."""

    def __init__(self, directory: Path) -> None:
        self._replicas = directory / "replicas"
        self.ended = EndedLogs(directory / "ended")
        self._leavings = directory / "leavings"
        self._standbys = directory / "standbys"
        self.standbys_file = directory / "standbys.json"
        self.memory_file = directory / "memory.json"
        self.living: set[str] = set()
        """Templates that run: their folders stay, whatever has been forked and has ended."""
        for folder in (self._replicas, directory / "ended", self._leavings, self._standbys):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def ids(self) -> list[str]:
        """Replicas that have a folder."""
        return sorted(os.listdir(self._replicas))

    def create(self, replica: str) -> None:
        """Make its folder; not on a full disk, but each attempt tries again."""
        with contextlib.suppress(OSError):
            (self._replicas / replica).mkdir(mode=0o700)

    def log(self, replica: str) -> Path | None:
        """Its log, also of one that has ended lately; None if there is no such replica."""
        if replica in self.ids():
            return self.log_path(replica)
        return self.ended.find(replica)

    def log_path(self, replica: str) -> Path:
        return self._replicas / replica / "log"

    def work(self, replica: str) -> Path:
        """The folder that belongs to the runtime."""
        return self._replicas / replica / "work"

    def socket(self, replica: str) -> Path:
        """Where it listens: not in its work, so that its process can neither see nor change it."""
        return self._replicas / replica / "socket"

    def empty_work(self, replica: str) -> Path:
        """That folder, with nothing of an earlier attempt in it. Raises OSError."""
        self.create(replica)
        folder = self.work(replica)
        self.end_birth(replica)
        remove_tree(folder)
        folder.mkdir(mode=0o700)
        return folder

    def standby(self, standby: str) -> Path:
        """The folder of a standby."""
        return self._standbys / standby

    def standbys(self, replicas: Iterable[str] = ()) -> list[Path]:
        """Markers of standbys that an earlier engine has left, and that none of these replicas has
        become."""
        became = {mark for replica in replicas for mark in self.marks(replica)}
        marks = (folder / "work" for folder in sorted(self._standbys.iterdir()))
        return [mark for mark in marks if mark not in became]

    def works(self) -> list[Path]:
        """The folders of all that run here."""
        return [*map(self.work, self.ids()), *self.standbys()]

    def save_standbys(self, content: Mapping[str, Any]) -> None:
        """Write the file of what standbys are for; a crash leaves the old one or the new one."""
        _write(self.standbys_file, content)

    def save_memory(self, content: Mapping[str, Any]) -> None:
        """Write the file of what replicas take of the memory, in the same way."""
        _write(self.memory_file, content)

    def end_standby(self, standby: str) -> None:
        """Remove its folder, unless it is a template that runs, or of which a replica was born."""
        if standby not in self.living and not self.has_born(standby):
            _clear_away(self._standbys / standby)

    def has_born(self, standby: str) -> bool:
        """Whether there is a replica whose process it was, or has forked."""
        mark = self._standbys / standby / "work"
        return any(mark in self.marks(replica)[1:] for replica in self.ids())

    def take_along(self, standby: str, replica: str, moves: Mapping[str, str]) -> None:
        """Move files of a standby's folder into its replica's: from which folder, to which.

        Its process runs, and may be hostile: what is not as it should be is left where it is.
        """
        for source, target in moves.items():
            with (
                contextlib.suppress(OSError),
                ForeignFolder.open(self._standbys / standby / "work") as theirs,
                theirs.folder(source) as above,
                ForeignFolder.open(self.work(replica)) as own,
                own.folder(target) as below,
            ):
                for name in above.names(MOST_MOVED):
                    with contextlib.suppress(OSError):  # it is open: only its name moves
                        above.move(name, below)

    def note_birth(self, replica: str, standby: str) -> None:
        """Its process is the standby's, or the template's fork: written before it is."""
        mark = self._standbys / standby / "work"
        (self._replicas / replica / "born").write_text(str(mark))

    def end_birth(self, replica: str) -> None:
        """Remove the folder of the standby that its last process was, if it was one."""
        marks = self.marks(replica)[1:]
        (self._replicas / replica / "born").unlink(missing_ok=True)
        for mark in marks:
            self.end_standby(mark.parent.name)

    def marks(self, replica: str) -> list[Path]:
        """What processes of the replica may carry as their marker."""
        try:
            born = [Path((self._replicas / replica / "born").read_text())]
        except OSError:
            born = []
        return [self.work(replica), *born]

    def note_groups(self, replica: str, folders: Sequence[Path]) -> None:
        """Keep where its control groups are: written before anything runs in them."""
        path = self._replicas / replica / "groups"
        path.write_text("".join(f"{folder}\n" for folder in folders))

    def groups(self, replica: str) -> list[Path]:
        """Folders of its control groups; none where there are none."""
        try:
            text = (self._replicas / replica / "groups").read_text()
        except OSError:
            return []
        return [Path(line) for line in text.splitlines()]

    def save(self, record: Record) -> None:
        """Write the record without its workload's variables, which may be secret; a crash leaves
        the old one or the new one."""
        workload = {name: value for name, value in vars(record.workload).items() if name != "env"}
        content = vars(record) | {"workload": workload}
        _write(self._replicas / record.id / "state.json", content)

    def load(self) -> Iterator[Record]:
        """What an earlier engine has written.

        Folders without a record, or with one that another version of us wrote, are passed over.
        """
        for replica in self.ids():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                path = self._replicas / replica / "state.json"
                content = json.loads(path.read_text())
                if content["workload"].pop("env", None):  # as older versions of us wrote it
                    _write(path, content)
                yield _record(content)

    def end(self, replica: str) -> None:
        """Have the replica's folder removed with the next `clear_leavings`, keep its log; only the
        last logs are kept."""
        owner = _owner_in(self._replicas / replica / "state.json")
        self.ended.keep(replica, self.log_path(replica), owner)
        self.end_birth(replica)
        try:
            (self._replicas / replica).rename(self._leavings / replica)
        except OSError:  # a full disk, say
            _clear_away(self._replicas / replica)

    def clear_leavings(self) -> None:
        """Remove the folders of replicas that are gone."""
        for name in os.listdir(self._leavings):
            _clear_away(self._leavings / name)


def _owner_in(state: Path) -> str | None:
    """Whose a replica with that record is; None where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _workload(json.loads(state.read_text())["workload"]).owned_by
    return None


def _clear_away(folder: Path) -> None:
    """Remove it; what cannot be removed is the next engine's."""
    try:
        remove_tree(folder)
    except FileNotFoundError:
        pass  # another replica that ends now removes it
    except OSError as error:
        log.warning("%s cannot be removed now: %s", folder, error)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    written = path.with_suffix(".new")
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file, default=_plain)
    written.replace(path)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else vars(value)


def _record(content: dict[str, Any]) -> Record:
    place = content["place"]
    return Record(
        **content
        | {
            "workload": _workload(content["workload"]),
            "place": Place(
                **place | {"key": WorkloadKey(**place["key"]), "gpus": tuple(place["gpus"])}
            ),
            "phases": tuple(Phase(**phase) for phase in content["phases"]),
        }
    )


def _workload(content: dict[str, Any]) -> Workload:
    return Workload(
        **content
        | {
            "key": WorkloadKey(**content["key"]),
            "models": tuple(Model(**model) for model in content["models"]),
            "resources": Resources(**content["resources"]),
            "secrets": tuple(content.get("secrets", ())),
            "calls": tuple(content.get("calls", ())),
        }
    )
