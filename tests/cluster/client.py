"""The stock bentoml client on the host, logged in to the release."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import TestClusterError

_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Client:
    """One `BENTOML_HOME`."""

    home: Path

    def __call__(self, *arguments: str, folder: Path | None = None) -> str:
        """What `bentoml` printed; TestClusterError with its words if it fails."""
        return self.types(shlex.join(["bentoml", *arguments]), folder)

    def types(self, line: str, folder: Path | None = None) -> str:
        """The same of a whole line, as it was printed for people."""
        command = [str(_BIN / "bentoml"), *shlex.split(line)[1:]]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BENTO", "PYTHON"))}
        own = {"BENTOML_HOME": str(self.home), "BENTOML_DO_NOT_TRACK": "True", "COLUMNS": "500"}
        done = subprocess.run(
            command, cwd=folder, env=kept | own, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TestClusterError(f"{line}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    @contextmanager
    def deployed(self, folder: Path, name: str, *flags: str) -> Iterator[str]:
        """The service of a folder, deployed and ready; deleted at the end. Its host name."""
        self("deploy", ".", "--name", name, *flags, folder=folder)
        try:
            yield f"{name}.models.test"
        finally:
            self("deployment", "delete", name)
