"""`report.html`: one file that fetches nothing, with every figure and its curves over time.

What stands in it may be anybody's (names of deployments and organizations), so the template
escapes all of it, and the page's own policy lets only our script and our styles run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hotplate.platform.dashboard.rendering import STYLE, templates
from hotplate.platform.loadtest.chart import (
    NAMES,
    PHASES,
    charts,
    cold_start_chart,
    number,
    seconds,
    time_marks,
)
from hotplate.platform.loadtest.words import NONE, notes, predicted, share, verdict

_HERE = Path(__file__).parent / "templates"
_OWN_STYLE = (_HERE / "report.css").read_text(encoding="utf-8")
_SCRIPT = (_HERE / "report.js").read_text(encoding="utf-8")
ROWS = 200
"""Cold starts that the table shows."""


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; script-src {_digest(_SCRIPT)}; "
    f"style-src {_digest(STYLE)} {_digest(_OWN_STYLE)}; base-uri 'none'; form-action 'none'"
)

_templates = templates(_HERE)
_templates.globals |= {
    "own_style": Markup(_OWN_STYLE),
    "script": Markup(_SCRIPT),
    "policy": _POLICY,
    "names": NAMES,
    "phases": PHASES,
    "share": share,
    "missing": NONE,
}
_templates.filters |= {"seconds": seconds, "number": number}


def page(report: Mapping[str, Any]) -> str:
    """The report as HTML."""
    series = report["series"]
    span_s = series["step_s"] * len(series["at"])
    began_at = datetime.fromisoformat(report["started_at"])
    times, unit = time_marks(series)
    return _templates.get_template("report.html").render(
        report=report,
        began_at=began_at,
        verdict=verdict(report),
        notes=notes(report),
        predicted=predicted(report),
        charts=charts(series),
        steps=len(series["at"]),
        times=times,
        unit=unit,
        cold_starts=cold_start_chart(report["cold_starts"], began_at.timestamp(), span_s),
        rows=ROWS,
        used=report.get("gpu_s") or report.get("replica_s"),
        used_what="GPU" if report.get("gpu_s") else "replica",
    )
