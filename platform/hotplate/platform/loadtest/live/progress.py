"""A load test on the terminal while it runs: one block that changes, or a line now and then."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hotplate.platform.loadtest.live.figures import LoadFigures
from hotplate.platform.loadtest.observation import Observation
from hotplate.platform.loadtest.samples import KEPT_UP

LINE_S = 10.0
"""Between two lines where there is no terminal."""


class ProgressDisplay:
    """A context: what it showed last stays on the terminal."""

    def __init__(self, console: Console, duration_s: float) -> None:
        self._console = console
        self._duration_s = duration_s
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._line_at_s = LINE_S

    def __enter__(self) -> ProgressDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show_start(self) -> None:
        """Before second 0 is known."""
        if self._live is not None:
            self._live.update(Text("the load maker starts"), refresh=True)

    def show(self, at_s: float, figures: LoadFigures, seen: Observation | None) -> None:
        """`at_s`: seconds since second 0, below 0 while the processes read the plan."""
        lines = _lines(at_s, self._duration_s, figures, seen)
        if self._live is not None:
            self._live.update(Text("\n".join(lines)), refresh=True)
        elif at_s >= self._line_at_s:
            self._line_at_s = at_s + LINE_S
            self._console.print("; ".join(lines), soft_wrap=True, markup=False)

    def say(self, sentence: str) -> None:
        """Above what changes."""
        self._console.print(sentence, soft_wrap=True, markup=False)


def _lines(
    at_s: float, duration_s: float, figures: LoadFigures, seen: Observation | None
) -> list[str]:
    if at_s < 0:
        return [f"the load begins in {-at_s:.0f} s"]
    spent = f"{min(at_s, duration_s):.0f} of {duration_s:.0f} s"
    if at_s > duration_s:
        spent += ", waiting for the last answers"
    asked = f"{figures.achieved_per_s:.1f} requests/s"
    if figures.asked_per_s is not None:
        asked = f"asked {figures.asked_per_s:.1f}/s, achieved {figures.achieved_per_s:.1f}/s"
        if figures.achieved_per_s < KEPT_UP * figures.asked_per_s:
            asked += " (the load maker is behind)"
    p95 = "-" if figures.p95_s is None else f"{figures.p95_s:.3f} s"
    lines = [
        f"{spent}: {asked}",
        f"answered {figures.answered}, refused {figures.refused}, failed {figures.failed}, "
        f"p95 {p95}",
    ]
    if seen is not None:
        lines.append(
            f"queued {seen.queued}, in flight {seen.in_flight}; replicas: {seen.ready} ready, "
            f"{seen.starting} starting"
        )
    return lines
