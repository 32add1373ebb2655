"""The number of users over time, for any file of this folder.

    locust -f endpoint.py,shapes.py --host URL --shape burst -u 50 -t 10m
    locust -f endpoint.py,shapes.py --host URL --shape trace --trace requests.csv --speed 10 -u 50

`-u` is the number at the peak. With `--per-user 1` there are as many requests per second as users,
as long as they are answered within a second.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from locust import LoadTestShape, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from load_shapes import SHARES, TRACE, Share, of_trace

DURATION_S = 60.0


@events.init_command_line_parser.add_listener
def add_shape_options(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument(
        "--shape",
        choices=[*SHARES, TRACE],
        default="constant",
        help="how the number of users goes over the time of -t (or of the trace)",
    )
    parser.add_argument("--trace", default="", metavar="FILE", help="CSV with a column arrival_s")
    parser.add_argument("--speed", type=float, default=1.0, help="how fast the trace goes by")


@events.init.add_listener
def check_shape(environment: Environment, **_: Any) -> None:
    """Ends Locust with a sentence where there is no such trace."""
    options: Any = environment.parsed_options
    if options.shape == TRACE and not options.trace:
        sys.exit("locust: --shape trace needs --trace FILE")
    if options.speed <= 0:
        sys.exit(f"locust: --speed {options.speed:g} is not above 0")
    try:
        _chosen(options)
    except (OSError, ValueError) as error:
        sys.exit(f"locust: --trace {options.trace}: {error}")


class ChosenShape(LoadTestShape):
    """The one that `--shape` names."""

    use_common_options: ClassVar[bool] = True
    _share: Share | None = None
    _duration_s = DURATION_S

    def tick(self) -> tuple[int, float] | None:
        assert self.runner is not None
        options: Any = self.runner.environment.parsed_options
        if self._share is None:
            self._share, self._duration_s = _chosen(options)
        at = self.get_run_time() / self._duration_s
        if at >= 1:
            self._share = None  # another test may be started on the web page
            return None
        peak = options.num_users or 1
        return round(peak * self._share(at)), float(peak)


def _chosen(options: Any) -> tuple[Share, float]:
    """Raises OSError, ValueError."""
    if options.shape != TRACE:
        return SHARES[options.shape], float(options.run_time or DURATION_S)
    share, lasts_s = of_trace(Path(options.trace))
    return share, float(options.run_time or lasts_s / options.speed)
