"""What is news of what gateways say of replicas and refusals."""

from __future__ import annotations

import pytest

from hotplate.platform import notices
from hotplate.platform.controller.planning.gateway_reports import EVERY_S, GatewayReports, Refusals
from hotplate.serving.gateway.errors import GatewayError


def kinds(events: list[tuple[str, str]]) -> list[str]:
    return [kind for kind, _ in events]


def test_a_replica_goes_out_once_and_comes_in_once() -> None:
    traffic = GatewayReports()
    assert kinds(traffic.update_ejections({"a": "it died"}, {"a", "b"}, 100.0)) == ["ReplicaOut"]
    assert traffic.update_ejections({"a": "HTTP 503"}, {"a", "b"}, 101.0) == []
    ejection = traffic.ejections["a"]
    assert (ejection.reason, ejection.since) == ("HTTP 503", 100.0)
    ((kind, message),) = traffic.update_ejections({}, {"a", "b"}, 102.5)
    assert (kind, message) == ("ReplicaIn", "replica a gets requests again, after 2.5 s")
    assert traffic.update_ejections({}, {"a", "b"}, 103.0) == []


def test_of_a_replica_that_has_crashed_other_events_tell() -> None:
    traffic = GatewayReports()
    assert traffic.update_ejections({"a": "it died"}, (), 100.0) == []
    traffic.update_ejections({"b": "it died"}, {"b"}, 100.0)
    assert traffic.update_ejections({"b": "it died"}, (), 101.0) == []
    assert traffic.update_ejections({}, {"b"}, 102.0) == []


def test_refusals_are_told_at_once_and_then_added_up() -> None:
    refusals = Refusals({})
    refusals.update({"share_full": 2})
    assert refusals.take_due(100.0) == {"share_full": 2}
    refusals.update({"share_full": 5, "unauthorized": 9})
    refusals.update({"share_full": 6, "no_capacity": 1})
    assert refusals.take_due(101.0) == {}
    assert refusals.due_at == 100.0 + EVERY_S
    assert refusals.take_due(100.0 + EVERY_S) == {"share_full": 4, "no_capacity": 1}
    assert refusals.due_at is None


def test_a_gateway_that_starts_anew_counts_from_zero() -> None:
    refusals = Refusals({"share_full": 5})
    refusals.update({})
    refusals.update({"share_full": 2})
    assert refusals.take_due(0.0) == {"share_full": 2}
    refusals.update({"share_full": 1})
    assert refusals.take_due(EVERY_S) == {"share_full": 1}


def test_what_an_earlier_control_plane_has_told_is_not_told_again() -> None:
    traffic = GatewayReports()
    traffic.update_refusals({"acme/echo": {"share_full": 5}})
    assert traffic.refusals["acme/echo"].take_due(0.0) == {}
    traffic.update_refusals({"acme/echo": {"share_full": 6}})
    assert traffic.refusals["acme/echo"].take_due(0.0) == {"share_full": 1}


@pytest.mark.parametrize("code", notices.REFUSED)
def test_every_refusal_has_its_reason_and_what_to_do(code: str) -> None:
    assert code in {error.code for error in GatewayError.__subclasses__()}
    said = notices.refused("chat", {code: 3})
    assert said.startswith(f"3 {code} (")
    assert "; " in said
    assert "{" not in said
