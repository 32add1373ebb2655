"""Checks in forks of this process, which has imported PyTorch once: `FOLDER NAME…`.

Each is `loadtests.gpu.check_process` with a folder of its own, and writes into `FOLDER/NAME.said`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch  # noqa: F401

from loadtests.gpu import check_process


def run(name: str, folder: Path) -> None:
    own = folder / name
    own.mkdir()
    with (folder / f"{name}.said").open("w") as said:
        os.dup2(said.fileno(), 1)
    sys.argv = [sys.argv[0], name, str(own)]
    check_process.main()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        if os.fork() == 0:
            run(name, Path(sys.argv[1]))
            break
        os.wait()
