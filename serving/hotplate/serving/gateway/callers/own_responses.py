"""Responses of the gateway's own, which are counted and logged here."""

from __future__ import annotations

from hotplate.serving.gateway.admission.cors import answer_lines
from hotplate.serving.gateway.admission.terms import Local
from hotplate.serving.gateway.errors import GatewayError
from hotplate.serving.gateway.http1.response_head import error_body, own_response
from hotplate.serving.gateway.proxy.exchange import Exchange
from hotplate.serving.gateway.proxy.route_context import RouteContext
from hotplate.serving.gateway.telemetry.access_log import Entry


def local_answer(exchange: Exchange, local: Local, retry_after_s: float | None) -> bytes:
    """The bytes of a response to a request whose head was read."""
    request, context = exchange.request, exchange.context
    context.counters.answered(local.status)
    exchange.status, exchange.sent_bytes = local.status, len(local.body)
    return own_response(
        local.status,
        local.body,
        method=request.method,
        keep_alive=exchange.keep_alive,
        http10=request.http10,
        request_id=exchange.request_id,
        retry_after_s=retry_after_s,
        more=context.version_line
        + (local.lines or answer_lines(context.dispatcher.route.cors, request)),
    )


def last_answer(context: RouteContext, peer: bytes, error: GatewayError) -> bytes:
    """The bytes of the last response on a connection of which nothing, or nothing more, is
    understood."""
    body = error_body(error)
    context.refused(error)
    context.counters.answered(error.status)
    if context.access_log is not None:
        name = context.dispatcher.route.name
        context.access_log.note(Entry(name, peer, status=error.status, size_bytes=len(body)))
    return own_response(error.status, body, keep_alive=False, retry_after_s=error.retry_after_s)
