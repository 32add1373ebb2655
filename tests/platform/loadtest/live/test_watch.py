"""What the platform's page on a deployment says of one instant, and of the whole time."""

from __future__ import annotations

import threading
from typing import Any

from hotplate.platform.errors import Unreachable
from hotplate.platform.loadtest.live.watch import PERIOD_S, PlatformWatch, observation
from hotplate.platform.loadtest.observation import Observation
from tests.support.patience import PATIENCE_S


def replica(state: str, slots: int | None = 2) -> dict[str, Any]:
    return {"state": state, "slots": None if slots is None else {"number": slots}}


PAGE = {
    "live": {
        "services": [
            {"queued": 3, "in_flight": 4, "gpus": 1.0},
            {"queued": 1, "in_flight": 2, "gpus": 0.0},
        ],
        "replicas": [
            *(replica("ready"), replica("ready", 5), replica("ready", None)),
            *(replica("starting"), replica("pending"), replica("draining"), replica("stopping")),
        ],
    }
}


def test_services_and_replicas_are_summed_up() -> None:
    assert observation(PAGE, 7.5) == Observation(
        at_s=7.5, queued=4, in_flight=6, ready=3, starting=1, slots=7, gpus=1.0
    )


def test_an_older_platform_does_not_say_which_gpus_a_service_has() -> None:
    live = {"services": [{"queued": 0, "in_flight": 0}], "replicas": []}
    assert observation({"live": live}, 0.0).gpus == 0.0


class Platform:
    """Answers every second question; each look is a period after the one before."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.enough = threading.Event()

    def clock(self) -> float:
        return self.now_s

    def ask(self, path: str) -> Any:
        if path.endswith("/cold_starts?count=1000"):
            return [
                {"replica": "late", "created_at": "2026-01-01T00:00:09+00:00"},
                {"replica": "new", "created_at": "2026-01-01T00:00:05+00:00"},
                {"replica": "old", "created_at": "2026-01-01T00:00:04+00:00"},
            ]
        assert path == "/deployments/chat"
        self.asked += 1
        self.now_s += PERIOD_S
        if self.asked >= 6:
            self.enough.set()
        if self.asked % 2:
            raise Unreachable("it restarts")
        return PAGE


def test_a_question_without_an_answer_is_a_gap_and_cold_starts_are_those_of_meanwhile() -> None:
    platform = Platform()
    watch = PlatformWatch(platform.ask, "chat", platform.clock)
    watch.start()
    assert platform.enough.wait(PATIENCE_S)
    seen = watch.stop(since=1767225605.0)
    assert [each.at_s for each in seen.observations][:3] == [1.0, 3.0, 5.0]
    assert watch.latest == seen.observations[-1]
    assert [each["replica"] for each in seen.cold_starts] == ["new", "late"]
