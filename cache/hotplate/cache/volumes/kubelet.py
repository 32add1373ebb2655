"""The kubelet of an agent's node: where its folders are, as both of them see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotplate.cache.volumes.ticket import DRIVER


@dataclass(frozen=True)
class Kubelet:
    """A node's kubelet, and what its pods are given."""

    folder: Path
    """Its root folder, at the same path for the agent, with mounts going both ways."""
    node: str
    """The name of the node."""
    parts: Callable[[Path], Path]
    """Makes the folder of our own modules below the one that it is given; called once."""

    @property
    def pods(self) -> Path:
        """Where pods' folders are, by their uid."""
        return self.folder / "pods"

    @property
    def socket(self) -> Path:
        """Where it asks for volumes."""
        return self.folder / "plugins" / DRIVER / "csi.sock"

    @property
    def registration(self) -> Path:
        """Where it finds the agent."""
        return self.folder / "plugins_registry" / f"{DRIVER}-reg.sock"

    def pod_folder(self, target: Path) -> Path:
        """The folder of the pod that has a volume at `target`. Raises ValueError."""
        parts = target.relative_to(self.pods).parts
        if len(parts) < 2 or ".." in parts:
            raise ValueError(f"{target} is no folder of a pod")
        return self.pods / parts[0]

    def empty_dir(self, target: Path, name: str) -> Path:
        """The `emptyDir` of that name of the pod that has a volume at `target`, which need not be
        there. Raises ValueError."""
        return self.pod_folder(target) / "volumes" / "kubernetes.io~empty-dir" / name
