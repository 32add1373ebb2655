"""`--fail-if`: what is understood, what is refused with a hint, and what a run says to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotplate.platform.errors import BadSetting
from hotplate.platform.loadtest.thresholds import OF_RUN, OPERATORS, parse, sentence

REPORT: dict[str, Any] = {
    "rate_per_s": {"asked": 40.0, "achieved": 39.5},
    "requests": 2400,
    "answered": 2388,
    "failed": 2,
    "refused": 10,
    "latency_s": {"mean": 0.5, "p50": 0.4, "p90": 0.9, "p95": 1.2, "p99": 3.0, "max": 4.5},
    "first_byte_s": None,
    "between_events_s": None,
    "good_per_s": 39.0,
    "cold_starts": [{}, {}, {}],
    "organizations": {
        "acme": {"requests": 100, "answered": 75, "refused": 25, "latency_s": {"p95": 1.0}},
        "a.b latency_s.p95": {"requests": 0, "answered": 0, "refused": 0, "latency_s": None},
    },
    "replica_s": {"busy": 10.0, "idle": 5.0, "starting": 2.0},
    "cost": None,
}


@pytest.mark.parametrize(
    ("expression", "value", "ok"),
    [
        ("p95_s > 1.5", 1.2, True),
        ("p95_s > 1.1", 1.2, False),
        ("p95_s>1.1", 1.2, False),
        ("  p95_s  >=  1.2 ", 1.2, False),
        ("latency_s.p95 < 1.2", 1.2, True),
        ("latency_s.p95 <= 1.2", 1.2, False),
        ("mean_s == 0.5", 0.5, False),
        ("max_s != 4.5", 4.5, True),
        ("failed > 0", 2, False),
        ("failed > 2", 2, True),
        ("good_per_s < 38", 39.0, True),
        ("refused_share > 1e-2", 10 / 2400, True),
        ("failed_share > 0", 2 / 2400, False),
        ("answered_share < 0.999", 2388 / 2400, False),
        ("rate_per_s.achieved < 39.9", 39.5, False),
        ("cold_starts > 3", 3, True),
        ("replica_s.idle > 4", 5.0, False),
        ("organizations.acme.refused > 30", 25, True),
        ("organizations.acme.refused_share > 0.2", 0.25, False),
        ("organizations.acme.p95_s > 2", 1.0, True),
        ("organizations.acme.latency_s.p95 > 2", 1.0, True),
        ("organizations.a.b latency_s.p95.requests > 0", 0, True),
    ],
)
def test_an_expression_is_about_a_figure(expression: str, value: float, ok: bool) -> None:
    checked = parse(expression).check(REPORT)
    assert checked == {"expression": expression.strip(), "value": value, "ok": ok}
    assert bool(sentence(checked)) is not ok


@pytest.mark.parametrize(
    "expression",
    [
        "first_byte_s.p95 > 1",
        "between_events_s.max < 1",
        "cost > 1",
        "gpu_s.busy > 1",
        "organizations.nobody.refused > 0",
        "organizations.acme.p99_s > 1",
        "organizations.a.b latency_s.p95.p95_s > 1",
        "organizations.a.b latency_s.p95.refused_share > 1",
    ],
)
def test_what_a_run_does_not_have_does_not_pass_in_silence(expression: str) -> None:
    checked = parse(expression).check(REPORT)
    assert (checked["value"], checked["ok"]) == (None, False)
    assert sentence(checked) == f"{expression!r} cannot be checked: this run has no such figure"


def test_the_sentence_has_the_value() -> None:
    assert sentence(parse("p95_s > 1.1").check(REPORT)) == "'p95_s > 1.1' is true: it is 1.2"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("p95 > 1.5", "did you mean p95_s?"),
        ("p96_s > 1.5", "did you mean p9"),
        ("fail > 0", "did you mean failed?"),
        ("organizations.acme.refusd > 0", "did you mean organizations.acme.refused?"),
        ("latency_s.p59 > 0", "did you mean latency_s.p"),
        ("zzzzqqqq > 0", "there are "),
        ("p95_s > fast", "fast is not a number"),
        ("p95_s > nan", "nan is not a number"),
        ("p95_s > inf", "inf is not a number"),
        ("p95_s = 1", "is no expression"),
        ("p95_s === 1", "did you mean p95_s?"),
        ("p95_s => 1", "did you mean"),
        ("p95_s", "is no expression"),
        ("", "is no expression"),
        ("> 1", "is no expression"),
        ("p95_s > 1 2", "is no expression"),
    ],
)
def test_what_is_none_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse(text)
    assert str(refused.value).startswith(f"--fail-if {text!r}")
    assert hint in str(refused.value)


@given(
    st.sampled_from(sorted(OF_RUN)),
    st.sampled_from(sorted(OPERATORS)),
    st.floats(-1e9, 1e9, allow_nan=False),
    st.sampled_from(["", " ", "  "]),
)
def test_every_figure_and_operator_can_be_written(
    name: str, comparison: str, limit: float, space: str
) -> None:
    found = parse(f"{name}{space}{comparison}{space}{limit!r}")
    assert (found.path, found.comparison, found.limit) == (OF_RUN[name], comparison, limit)


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_a_sentence(text: str) -> None:
    try:
        found = parse(text)
    except BadSetting:
        return
    assert found.expression == text.strip()
