"""`python -m loadtests.programs.http_fuzzer CORPUS [libFuzzer's flags]`: atheris and an oracle.

It is a process of its own, because libFuzzer ends the one that it runs in. The first byte of an
input says how the rest is cut in pieces, and whether it is a caller's or (from 128 on) a replica's.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

atheris: Any = importlib.import_module("atheris")  # has no types, and may be missing

with atheris.instrument_imports(include=["hotplate.serving.gateway"]):
    from tests.support.gateway.answer_oracle import judge_answer
    from tests.support.gateway.http_oracle import judge


def main() -> None:
    logging.disable()  # every other input would log that a replica is out
    atheris.Setup(sys.argv, _take)
    atheris.Fuzz()


def _take(data: bytes) -> None:
    if data:
        (judge_answer if data[0] & 128 else judge)(data[1:], data[0])


if __name__ == "__main__":
    main()
