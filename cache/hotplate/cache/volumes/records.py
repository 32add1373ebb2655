"""The volumes of a node, as they are found again after the agent's end: one file each."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hotplate.cache.tiers.durable_folder import PARTIAL, DurableFolder
from hotplate.cache.volumes.claim import Claim
from hotplate.cache.volumes.ticket import from_json

log = logging.getLogger(__name__)

_SUFFIX = ".json"


@dataclass(frozen=True)
class VolumeRecord:
    """A volume that is mounted, is being mounted, or is being removed."""

    claim: Claim
    parts: str
    """The name of the folder of our modules that it shows."""
    compiled: str = ""
    """The manifest of what earlier replicas have compiled; "" = none."""


class VolumeRecords:
    """Beside each record `NAME.json` lies the volume's folder `NAME`. Raises OSError."""

    def __init__(self, root: Path) -> None:
        self._folder = DurableFolder(root)
        self._records = {record.claim.volume: record for record in self._read()}

    def __iter__(self) -> Iterator[VolumeRecord]:
        return iter(list(self._records.values()))

    def get(self, volume: str) -> VolumeRecord | None:
        return self._records.get(volume)

    def folder(self, volume: str) -> Path:
        """The folder of a volume, which need not be there."""
        return self._folder.root / volume

    def put(self, record: VolumeRecord) -> None:
        claim = record.claim
        content = {
            "target": str(claim.target),
            "ticket": asdict(claim.ticket),
            "parts": record.parts,
            "compiled": record.compiled,
        }
        self._folder.put(f"{claim.volume}{_SUFFIX}", json.dumps(content).encode())
        self._records[claim.volume] = record

    def remove(self, volume: str) -> None:
        self._records.pop(volume, None)
        self._folder.remove(f"{volume}{_SUFFIX}")

    def _read(self) -> Iterator[VolumeRecord]:
        for path in list(self._folder.root.iterdir()):
            if path.name.startswith(PARTIAL):
                path.unlink()
            elif path.suffix == _SUFFIX and path.is_file():
                try:
                    content = json.loads(path.read_bytes())
                    target, ticket = Path(content["target"]), from_json(content["ticket"])
                    claim = Claim(path.stem, target, ticket)
                    parts, compiled = str(content["parts"]), str(content.get("compiled", ""))
                    yield VolumeRecord(claim, parts, compiled)
                except (ValueError, KeyError, TypeError):
                    log.warning("%s is damaged; kubelet will ask for that volume again", path)
                    path.unlink()
