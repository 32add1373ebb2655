"""Processes of pods, as the host sees them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def cut_from_each_other(one: dict[str, Any], other: dict[str, Any], word: str) -> Iterator[None]:
    """Nothing that two pods send to each other arrives while the block runs; both reach all
    others. `word` is in the command of what runs in them."""
    _routes("add", one, other, word)
    try:
        yield
    finally:
        _routes("delete", one, other, word)


def _routes(change: str, one: dict[str, Any], other: dict[str, Any], word: str) -> None:
    """Changes in each pod's network the route that ends at the other pod's address."""
    for inside, address in ((one, other["status"]["podIP"]), (other, one["status"]["podIP"])):
        enter = ["nsenter", f"--target={pids(inside, word)[0]}", "--net"]
        changing = ["ip", "route", change, "blackhole", f"{address}/32"]
        subprocess.run([*enter, *changing], check=True)


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
