"""The processes that make the load: stock Locust, with a file that carries out a `LoadPlan`."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import site
import socket
import subprocess
import sys
from pathlib import Path

from hotplate.platform.errors import CannotStart
from hotplate.platform.loadtest.plan import READY, LoadPlan

ARRIVALS = Path(__file__).with_name("locustfiles") / "arrivals.py"
INSTALL = "pip install 'hotplate[loadtest]'"
LOG = "locust.log"
LAST_LINES = 5
LOOPBACK = "127.0.0.1"
OVERTIME_S = 60.0
"""What Locust may take from its start to its end beyond the plan's duration and timeout."""


class LoadMaker:
    """Locust for one plan, which is in its folder or will be when the processes are ready."""

    def __init__(self, folder: Path, plan: LoadPlan) -> None:
        self._folder = folder
        self._plan = plan
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """Starts the processes, which wait for the plan and its second 0, and end by themselves.

        Raises CannotStart where Locust is not installed, and OSError."""
        if importlib.util.find_spec("locust") is None:
            raise CannotStart(f"a load test needs Locust, which is not installed: {INSTALL}")
        with (self._folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever started us, who then stops these
            )

    @property
    def ready(self) -> bool:
        """Whether all processes wait for nothing but the plan."""
        names = (READY.format(number) for number in range(self._plan.processes))
        return all((self._folder / name).exists() for name in names)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, grace_s: float) -> None:
        """Has the processes write down what they have and end; those that take longer are killed.
        What is under way is cut off, and is in no sample."""
        if self._process is None or not self.running():
            return
        self._stopped = True
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait(self) -> None:
        """Until the processes have ended by themselves."""
        if self._process is not None:
            self._process.wait()

    @property
    def last_words(self) -> str:
        """What the processes said at last if they failed; empty if they did not."""
        if self._process is None or self._stopped or not self._process.poll():
            return ""
        lines = (self._folder / LOG).read_text(errors="replace").split("\n")
        return "\n".join([line for line in lines if line.strip()][-LAST_LINES:])

    def _command(self) -> list[str]:
        plan = self._plan
        lasts_s = plan.duration_s + plan.timeout_s + OVERTIME_S
        flags: dict[str, object] = {
            "--locustfile": ARRIVALS,
            "--plan": self._folder,
            "--users": plan.processes,
            "--spawn-rate": plan.processes,
            "--run-time": f"{math.ceil(lasts_s)}s",
            "--exit-code-on-error": 0,  # a request that failed is what we want to know
        }
        if plan.processes > 1:
            port = _free_port()
            flags |= {
                "--processes": plan.processes,
                "--master-bind-host": LOOPBACK,
                "--master-bind-port": port,
                "--master-host": LOOPBACK,
                "--master-port": port,
            }
        command = [
            sys.executable,
            "-m",
            "locust",
            "--headless",
            "--only-summary",
            "--skip-log-setup",
        ]
        return command + [str(part) for flag in flags.items() for part in flag]

    def _environment(self) -> dict[str, str]:
        """Ours, without anything by which its user has told Locust how to run otherwise."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("LOCUST_")}
        own_packages = {"PYTHONUSERBASE": site.getuserbase()}  # they are below HOME otherwise
        return kept | own_packages | {"HOME": str(self._folder)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
