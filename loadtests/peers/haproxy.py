"""HAProxy as a queue before replicas: its configuration. One thread, so that it uses one core."""

from __future__ import annotations

from collections.abc import Sequence

from loadtests.harness.route_plan import Plan

TEMPLATE = """
global
    maxconn 11000
    no strict-limits
    nbthread 1
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
    balance leastconn
    {servers}
"""
REPLICAS = """option redispatch 1
    retries 3
    retry-on conn-failure empty-response response-timeout
    http-request disable-l7-retry unless METH_GET
    default-server check inter 200ms fall 1 rise 1
    default-server observe layer4 error-limit 1 on-error mark-down"""
"""With several replicas a GET that fails at one is sent to another."""


def configuration(
    port: int, addresses: Sequence[str], plan: Plan, *, abort_on_close: bool = False
) -> str:
    """`addresses` are host:port. `abort_on_close` drops the requests of callers that have left."""
    servers = [f"server r{n} {one} maxconn {plan.slots}" for n, one in enumerate(addresses)]
    options = ["option abortonclose" if abort_on_close else "no option abortonclose"]
    if plan.streams:
        options.append("option http-no-delay")
    return TEMPLATE.format(
        port=port,
        options="\n    ".join(options),
        servers="\n    ".join([REPLICAS, *servers] if len(servers) > 1 else servers),
    )
