"""One check in a process of its own: `python -m loadtests.gpu.check_process NAME FOLDER`.

It writes a finding a line (JSON), and last `{"end": …}`: empty, or what went wrong in a sentence.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from loadtests.gpu.checks import CHECKS
from loadtests.gpu.finding import CheckFailed
from loadtests.harness.distributions import distribution
from loadtests.harness.voice import voice


def main() -> None:
    said_to = voice()
    name, folder = sys.argv[1:]
    check = next(check for check in CHECKS if check.name == name)
    try:
        for finding in check.run(Path(folder)):
            _say(said_to, asdict(finding))
    except CheckFailed as error:
        _say(said_to, {"end": str(error)})
    except ModuleNotFoundError as error:
        traceback.print_exc()
        package = str(error.name).partition(".")[0]
        _say(said_to, {"end": "", "missing": distribution(package)})
    except Exception as error:
        traceback.print_exc()
        _say(said_to, {"end": f"{type(error).__name__}: {error}"})
    else:
        _say(said_to, {"end": ""})


def _say(to: TextIO, value: dict[str, Any]) -> None:
    print(json.dumps(value), file=to)


if __name__ == "__main__":
    main()
