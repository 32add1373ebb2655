"""What the test cluster asks of its own API server, by kubectl."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import TestClusterError
from tests.cluster.layout import Layout
from tests.support.patience import pause_after

_ASK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Kubectl:
    """As the admin of the cluster, or as another kubeconfig says."""

    layout: Layout
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """What the command printed; TestClusterError with its words if it fails."""
        done = self._run(arguments, given)
        if done.returncode:
            raise TestClusterError(f"kubectl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Makes the objects what they are to be."""
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self("apply", "--server-side", "--force-conflicts", "--filename=-", given=given)

    def let_go(self, namespace: str) -> None:
        """Has its ConfigMaps wait for nobody, as those do whose engine has ended before them."""
        said = self("get", "configmaps", f"--namespace={namespace}", "--output=json")
        held = [each for each in json.loads(said)["items"] if each["metadata"].get("finalizers")]
        for each in held:
            each["metadata"]["finalizers"] = []
        if held:
            given = json.dumps({"apiVersion": "v1", "kind": "List", "items": held})
            self("replace", "--filename=-", given=given)

    def wait(self, *arguments: str, timeout_s: float, word: str = "") -> None:
        """Asks until the command succeeds and prints the word; TestClusterError with its last words
        after that long."""
        asked_at = time.monotonic()
        deadline = asked_at + timeout_s
        while (done := self._run(arguments, None)).returncode or word not in done.stdout:
            now = time.monotonic()
            if now > deadline:
                said = (done.stderr or done.stdout).strip()
                raise TestClusterError(f"kubectl {' '.join(arguments)}: {said}")
            time.sleep(pause_after(now - asked_at, _ASK_EVERY_S))
            asked_at = time.monotonic()

    def _run(
        self, arguments: tuple[str, ...], given: str | None
    ) -> subprocess.CompletedProcess[str]:
        kubeconfig = self.kubeconfig or self.layout.kubeconfig
        command = [self.layout.program("kubectl"), f"--kubeconfig={kubeconfig}"]
        return subprocess.run(
            [*command, *arguments], input=given, capture_output=True, text=True, check=False
        )
