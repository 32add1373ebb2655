"""HAProxy as a queue in front of one server: its configuration."""

from __future__ import annotations

TEMPLATE = """
global
    maxconn 4000
defaults
    mode http
    timeout connect 5s
    timeout client 120s
    timeout server 120s
    timeout queue 120s
    {options}
frontend front
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    server replica {backend} maxconn {slots}
"""


def configuration(port: int, backend: str, slots: int, *, abort_on_close: bool) -> str:
    """`backend` is host:port. With `abort_on_close` a request of a caller that left is dropped."""
    options = "option abortonclose" if abort_on_close else "no option abortonclose"
    return TEMPLATE.format(port=port, backend=backend, slots=slots, options=options)
