"""What a control group has used, by either version's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hotplate.deploy.process.group_usage import GroupUsage, usage_of

V2 = {
    "one/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\n",
    "one/memory.current": "1000\n",
    "one/memory.stat": "anon 500\ninactive_file 300\n",
}
V1 = {
    "memory/memory.usage_in_bytes": "1000\n",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 1200\n",
    "pids/pids.max": "max\n",
    "cpuacct/cpuacct.usage": "2500000000\n",
}


@pytest.mark.parametrize(
    ("files", "used"),
    [
        (V2, GroupUsage(2.5, 700)),
        (V1, GroupUsage(2.5, 0)),
        ({"memory/memory.usage_in_bytes": "7\n"}, GroupUsage(None, 7)),
        ({"one/memory.current": "broken\n"}, GroupUsage()),
        ({}, GroupUsage()),
    ],
)
def test_cpu_time_and_memory_are_read(
    tmp_path: Path, files: Mapping[str, str], used: GroupUsage
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = sorted({(tmp_path / name).parent for name in files})
    assert usage_of([*folders, tmp_path / "gone"]) == used
