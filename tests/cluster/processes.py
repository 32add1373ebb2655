"""Processes of pods, as the host sees them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def kill(pod: dict[str, Any], word: str) -> None:
    """Kills, by SIGKILL, what runs in a pod with that word in its command; AssertionError where
    nothing does."""
    for pid in pids(pod, word):
        os.kill(pid, signal.SIGKILL)


def pids(pod: dict[str, Any], word: str = "") -> list[int]:
    """What runs in a pod with that word in its command, or all; AssertionError where nothing
    does."""
    found = [
        int(process.name)
        for process in _of(pod["metadata"]["uid"])
        if not word or word in _argv(process)
    ]
    assert found, f"nothing with '{word}' runs in {pod['metadata']['name']}"
    return found


def _of(uid: str) -> Iterator[Path]:
    """A kubelet makes a control group for each pod, with its uid."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            groups = (process / "cgroup").read_text()
        except OSError:  # it has ended
            continue
        if f"pod{uid}" in groups:
            yield process


def _argv(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")
    except OSError:
        return []
