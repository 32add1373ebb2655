"""The checker of histories finds each kind of violation, and calls nothing a violation that may be
none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from loadtests.history.guarantees import turns_of, violations
from loadtests.history.observations import Ended, History, Passed, Run, Sent

Break = Callable[[History], History]

# Two slots. Requests 1 and 2 run at once, 3 waits for the first of them, 4 for the second; 5 is
# refused, 6 leaves while it runs. Even ones may run twice.
GOOD = History(
    sent=[
        Sent(1, 10.00, False, "acme"),
        Sent(2, 10.01, True, "acme"),
        Sent(3, 10.10, False, "acme"),
        Sent(4, 10.20, True, "acme"),
        Sent(5, 10.30, False, "beta"),
        Sent(6, 10.40, True, "beta"),
    ],
    ended=[
        Ended(1, 11.01, "answered", 1),
        Ended(2, 11.51, "answered", 2),
        Ended(3, 12.01, "answered", 3),
        Ended(4, 12.51, "answered", 4),
        Ended(5, 10.31, "refused"),
        Ended(6, 10.90, "left"),
    ],
    runs=[
        Run(1, "r1", 10.00, 11.00),
        Run(2, "r1", 10.02, 11.50),
        Run(3, "r1", 11.00, 12.00),
        Run(4, "r1", 11.50, 12.50),
        Run(6, "r2", 10.41, 14.00),
    ],
    passed=[
        Passed(1, "g1", 11.001, 0.0, 1.0),
        Passed(2, "g1", 11.501, 0.0, 1.49),
        Passed(3, "g1", 12.001, 0.9, 1.9),
        Passed(4, "g1", 12.501, 1.3, 2.3),
    ],
    slots={"r1": 2, "r2": 1, "r3": 1},
)


def sentences(history: History) -> list[str]:
    return list(violations(history))


def with_end(end: Ended) -> Break:
    """The request has this end in place of its own."""
    return lambda good: replace(
        good, ended=[one for one in good.ended if one.request != end.request] + [end]
    )


def and_end(end: Ended) -> Break:
    """There is this end beside all others."""
    return lambda good: replace(good, ended=[*good.ended, end])


def and_run(run: Run) -> Break:
    """There is this run beside all others."""
    return lambda good: replace(good, runs=[*good.runs, run])


def with_run(*runs: Run) -> Break:
    """The request has these runs in place of its own."""
    return lambda good: replace(
        good, runs=[one for one in good.runs if one.request != runs[0].request] + [*runs]
    )


def test_a_good_history_has_no_violation() -> None:
    assert sentences(GOOD) == []
    assert {one.request for one in turns_of(GOOD)["g1", "acme"]} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        pytest.param(
            lambda good: replace(good, ended=good.ended[1:]),
            "request 1 was sent at 10.000000 s and has no end",
            id="no end",
        ),
        pytest.param(
            and_end(Ended(1, 11.2, "cut")),
            "request 1 ended 2 times: answered at 11.010000 s, cut at 11.200000 s",
            id="two ends",
        ),
        pytest.param(
            with_end(Ended(5, 70.3, "silent")),
            "request 5 was silent: it was sent at 10.300000 s, and its client gave up at "
            "70.300000 s",
            id="silent",
        ),
        pytest.param(
            and_end(Ended(9, 11.2, "left")),
            "request 9 ended at 11.200000 s and was never sent",
            id="never sent",
        ),
        pytest.param(
            with_end(Ended(5, 10.29, "refused")),
            "request 5 ended at 10.290000 s, before it was sent at 10.300000 s",
            id="ended before it was sent",
        ),
        pytest.param(
            lambda good: replace(good, sent=[*good.sent, Sent(6, 12.0, True, "beta")]),
            "request 6 was sent 2 times: clients must not use a number again",
            id="a number used twice",
        ),
        pytest.param(
            and_run(Run(3, "r2", 14.1, 14.2)),
            "request 3 may not run twice and ran 2 times: at r1 from 11.000000 s until "
            "12.000000 s, and at r2 from 14.100000 s until 14.200000 s",
            id="run twice",
        ),
        pytest.param(
            and_run(Run(9, "r2", 14.1, None)),
            "request 9 ran at r2 from 14.100000 s until killed and was never sent",
            id="run and never sent",
        ),
        pytest.param(
            and_run(Run(5, "r2", 14.1, 14.2)),
            "request 5 was refused as not tried at 10.310000 s, but ran at r2 from 14.100000 s "
            "until 14.200000 s",
            id="refused and run",
        ),
        pytest.param(
            lambda good: replace(good, runs=[run for run in good.runs if run.request != 1]),
            "request 1 was sent at 10.000000 s and answered at 11.010000 s, but did not run in "
            "between: it ran nowhere",
            id="answered and not run",
        ),
        pytest.param(
            with_run(Run(1, "r3", 10.0, None)),
            "request 1 was sent at 10.000000 s and answered at 11.010000 s, but did not run in "
            "between: it ran at r3 from 10.000000 s until killed",
            id="answered by a handler that was killed",
        ),
        pytest.param(
            with_run(Run(3, "r1", 10.99, 12.00)),
            "replica r1 has 2 slots and ran 3 handlers at 10.990000 s: requests 1, 2, 3",
            id="one handler too many",
        ),
        pytest.param(
            with_run(Run(2, "r2", 13.0, 13.5), Run(2, "r1", 10.02, 11.5)),
            "replica r2 has 1 slots and ran 2 handlers at 13.000000 s: requests 2, 6",
            id="a slot given away while the handler of a caller that left goes on",
        ),
        pytest.param(
            lambda good: replace(
                good,
                passed=[
                    *good.passed[:2],
                    Passed(3, "g1", 12.001, 1.4, 1.9),
                    Passed(4, "g1", 12.501, 0.8, 2.3),
                ],
            ),
            "request 4 came after request 3 and was granted before it: it came at 10.198000 s at "
            "the earliest, the other by 10.103000 s; it was granted by 11.005000 s, the other at "
            "11.496000 s at the earliest",
            id="out of order",
        ),
        pytest.param(
            with_end(Ended(3, 12.01, "answered", 4)),
            "request 3 got the answer of request 4 at 12.010000 s",
            id="the answer of another",
        ),
        pytest.param(
            with_end(Ended(3, 12.01, "answered")),
            "request 3 got the answer of no request at 12.010000 s",
            id="an answer of nobody",
        ),
    ],
)
def test_each_violation_is_one_sentence_with_the_requests_and_times(
    broken: Break, says: str
) -> None:
    assert sentences(broken(GOOD)) == [says]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            and_run(Run(4, "r2", 14.1, None)),
            id="what may run twice runs twice",
        ),
        pytest.param(
            with_end(Ended(2, 11.51, "refused")),
            id="what may run twice has run and is refused when it waits again",
        ),
        pytest.param(with_end(Ended(1, 10.5, "failed")), id="a failed request has run"),
        pytest.param(
            lambda good: replace(
                good,
                runs=[
                    *good.runs[:-1],
                    Run(6, "r2, life 1", 10.41, None),
                    Run(8, "r2, life 2", 10.6, 10.7),
                ],
                sent=[*good.sent, Sent(8, 10.5, True, "beta")],
                ended=[*good.ended, Ended(8, 10.8, "answered", 8)],
                slots={"r1": 2, "r2, life 1": 1, "r2, life 2": 1},
            ),
            id="the handlers of a killed replica take none of the next one's slots",
        ),
    ],
)
def test_what_is_allowed_is_no_violation(other: Break) -> None:
    assert sentences(other(GOOD)) == []


INVERTED = replace(
    GOOD,
    passed=[
        Passed(3, "g1", 12.001, 1.4, 1.9),
        Passed(4, "g1", 12.501, 0.8, 2.3),
    ],
)


@pytest.mark.parametrize(
    "uncertain",
    [
        pytest.param(
            lambda seen: replace(
                seen, passed=[seen.passed[0]._replace(noted_at=12.11), seen.passed[1]]
            ),
            id="the line may have been written late",
        ),
        pytest.param(
            lambda seen: replace(seen, disturbed=[(8.0, 9.0), (11.2, 11.3)]),
            id="it waited while a replica was dead",
        ),
        pytest.param(
            lambda seen: replace(
                seen, passed=[seen.passed[0], seen.passed[1]._replace(gateway="g2")]
            ),
            id="of two gateways",
        ),
        pytest.param(
            lambda seen: replace(
                seen,
                sent=[*seen.sent[:3], seen.sent[3]._replace(order="beta"), *seen.sent[4:]],
            ),
            id="of two organizations",
        ),
    ],
)
def test_order_is_only_compared_where_it_is_certain(uncertain: Break) -> None:
    assert len(sentences(INVERTED)) == 1
    assert sentences(uncertain(INVERTED)) == []


def test_an_excess_of_slots_is_told_once_until_it_is_over() -> None:
    runs = [Run(number, "r1", 20 + number / 10, 30.0) for number in range(4)]
    again = [Run(10 + number, "r1", 40 + number / 10, 50.0) for number in range(3)]
    history = History(runs=[*runs, *again], slots={"r1": 1})
    told = [line for line in sentences(history) if line.startswith("replica")]
    assert [line.rpartition(": ")[2] for line in told] == ["requests 0, 1", "requests 10, 11"]
