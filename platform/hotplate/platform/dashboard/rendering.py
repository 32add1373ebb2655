"""Pages as HTML: escaped whatever is in them, and shut off from everything else."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HERE = Path(__file__).parent
STYLE = (_HERE / "style.css").read_text(encoding="utf-8")
_STYLE_DIGEST = b64encode(sha256(STYLE.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Host, Cookie, X-YATAI-API-TOKEN",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every page: no scripts, no frames, nothing from elsewhere, no caching."""


def templates(*folders: Path) -> Environment:
    """Templates of these folders, which may extend `frame.html`; what they show is escaped."""
    found = Environment(
        loader=FileSystemLoader([*folders, _HERE / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["style"] = Markup(STYLE)
    found.filters["moment"] = _moment
    return found


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


_templates = templates()


FORM_HEADERS = {
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace(
        "form-action 'none'", "form-action 'self'"
    ),
    # Without a referrer a browser does not say either from whose page a form comes.
    "Referrer-Policy": "same-origin",
}
"""In place of these, headers of pages with a form."""


def page(
    template: str, status: int = 200, refresh_s: int | None = None, **values: Any
) -> web.Response:
    """A template with these values; the browser asks again after `refresh_s`."""
    text = _templates.get_template(template).render(values)
    headers = dict(HEADERS)
    if refresh_s is not None:
        headers["Refresh"] = str(refresh_s)
    if status == 401:
        headers["WWW-Authenticate"] = 'Token header="X-YATAI-API-TOKEN"'
    # A header or a path may have had bytes that are no text.
    body = text.encode(errors="replace")
    return web.Response(
        body=body, status=status, content_type="text/html", charset="utf-8", headers=headers
    )


def form_page(template: str, status: int = 200, **values: Any) -> web.Response:
    """A page whose forms may be sent to us."""
    response = page(template, status, **values)
    response.headers.update(FORM_HEADERS)
    return response
