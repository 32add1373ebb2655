"""The chart of this tree, by the `helm` that the cluster was built with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.binaries import KUBERNETES_VERSION
from tests.cluster.errors import TestClusterError
from tests.cluster.layout import REPOSITORY, Layout

CHART = REPOSITORY / "deploy/manifests/chart"
VALUES = Path(__file__).with_name("values.yaml")
RELEASE = "hotplate"
KUBERNETES = f"--kube-version={KUBERNETES_VERSION}"
"""For what asks no cluster: a `helm` that was built here knows no version of its own."""


@dataclass(frozen=True, slots=True)
class Helm:
    """As the admin of the cluster that a kubeconfig leads to."""

    layout: Layout
    kubeconfig: Path

    def __call__(self, *arguments: str) -> str:
        """What the command printed; TestClusterError with its words if it fails."""
        program = self.layout.program("helm")
        command = [program, f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TestClusterError(f"helm {arguments[0]}: {(done.stderr + done.stdout).strip()}")
        return done.stdout

    def rendered(self, namespace: str, values: dict[str, Any], folder: Path) -> list[Any]:
        """The chart's objects, hooks too, with our values and these over them."""
        file = folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        flags = [f"--namespace={namespace}", f"--values={VALUES}", f"--values={file}"]
        text = self("template", RELEASE, str(CHART), *flags, KUBERNETES)
        return [each for each in yaml.safe_load_all(text) if each]
