"""What a process does first when it goes on after it was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, time
from hotplate.platform.leadership.watchdog import Watchdog, begin_anew
if os.path.exists(sys.argv[1]):
    sys.exit(7)  # it has begun anew
open(sys.argv[1], "w").close()
watchdog = Watchdog(time.monotonic, lambda now: begin_anew("it was stopped"))
watchdog.bark_at(time.monotonic() + 0.3)
print("ready", flush=True)
sys.stdin.readline()
while True:  # as a worker thread of Python would: it writes whenever it runs
    os.write(1, b"acts\\n")
    time.sleep(0.2)
"""


def test_a_process_that_was_stopped_until_its_term_was_over_does_nothing_more(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "began")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    pending = f"/proc/{process.pid}/status"
    alarm = 1 << (signal.SIGALRM - 1)

    def rang() -> bool:
        lines = Path(pending).read_text().splitlines()
        return any(line.startswith("ShdPnd") and int(line.split()[1], 16) & alarm for line in lines)

    while not rang():
        os.sched_yield()
    process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=30)
    assert output == ""
    assert errors == (
        "hotplate: this control plane no longer acts, and begins anew: it was stopped\n"
    )
    assert process.returncode == 7
