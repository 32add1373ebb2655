"""A signal while a command still imports what it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STARTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.{handler})

def say(event, arguments):
    if event == "import" and arguments[0] == "hotplate.autoscaler.errors":
        print("started", flush=True)

sys.addaudithook(say)
from hotplate.platform.program import main
sys.exit(main())
"""
"""Says when it begins to import our own modules."""
COMMANDS = (["status"], ["loadtest", "http://127.0.0.1:1"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_interrupt_while_a_command_begins_is_no_traceback(command: list[str]) -> None:
    program = STARTED.format(handler="default_int_handler")
    for after_ms in (0, 50, 150, 300):
        with subprocess.Popen(
            [sys.executable, "-c", program, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(after_ms / 1000)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        assert "Traceback" not in said, f"interrupted after {after_ms} ms"
        assert "KeyboardInterrupt" not in said, f"interrupted after {after_ms} ms"


def test_a_process_that_is_to_ignore_interrupts_ignores_them() -> None:
    program = STARTED.format(handler="SIG_IGN")
    with subprocess.Popen(
        [sys.executable, "-c", program, "--version"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert "hotplate " in said
    assert process.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes here")
def test_the_first_process_of_a_container_ends_while_it_begins() -> None:
    program = STARTED.format(handler="default_int_handler").replace(
        'print("started", flush=True)', 'print("started", flush=True); time.sleep(60)'
    )
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", sys.executable, "-c", f"import time\n{program}", "status"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        try:
            assert process.wait(10) == 128 + signal.SIGTERM
        finally:
            process.kill()
