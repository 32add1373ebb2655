"""Processor time of processes."""

from __future__ import annotations

import time

import psutil


def cpu_s(pid: int) -> float:
    """CPU time of a running process so far, all its threads, not its children's.

    By its clock, which counts nanoseconds: /proc/<pid>/stat counts ticks of 10 ms, and a process
    that hardly computes may cross one at any moment. The clock's number is that of
    clock_getcpuclockid(3). Raises OSError if the process is gone.
    """
    return time.clock_gettime(~pid << 3 | 2)


def machine_cpu_s() -> float:
    """CPU time of everything on this machine so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
