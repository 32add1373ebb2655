"""One check in a process of its own: `python -m loadtests.gpu.check_process NAME FOLDER`.

It writes each finding as a line of JSON, and last `{"end": …}`: empty, or a sentence on a failure.
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
from loadtests.harness.own_stdout import own_stdout


def main() -> None:
    output = own_stdout()
    name, folder = sys.argv[1:]
    check = next(check for check in CHECKS if check.name == name)
    try:
        for finding in check.run(Path(folder)):
            _write(output, asdict(finding))
    except CheckFailed as error:
        _write(output, {"end": str(error)})
    except ModuleNotFoundError as error:
        traceback.print_exc()
        package = str(error.name).partition(".")[0]
        _write(output, {"end": "", "missing": distribution(package)})
    except Exception as error:  # the check's verdict, with its traceback above
        traceback.print_exc()
        _write(output, {"end": f"{type(error).__name__}: {error}"})
    else:
        _write(output, {"end": ""})


def _write(to: TextIO, value: dict[str, Any]) -> None:
    print(json.dumps(value), file=to)


if __name__ == "__main__":
    main()
