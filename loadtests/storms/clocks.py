"""The wall clock of all roles is set forward by an hour, right, back by an hour, and right again.

`LD_PRELOAD` of `programs/faulty_libc.c` shifts what `clock_gettime(CLOCK_REALTIME)`, `gettimeofday`
and `time` say in `up`, control plane, gateway and agent, while they run. Monotonic clocks go on, as
they do when an administrator or NTP sets the time; times of files are the kernel's and stay right.
Nobody may notice: no request, wake, roll-out or upload fails, no replica is started or stopped for
it.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loadtests.harness.verdict import Verdict
from loadtests.systems.faulted_platform import FaultedPlatform, faulted_platform
from loadtests.systems.faulty_libc import FaultyLibc
from tests.support.control_plane.cloud import MODEL_MANIFEST, tar_of

HOUR_S = 3600
NEARLY = timedelta(minutes=5)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0, help="with each wrong clock (15)")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    with FaultyLibc(folder, folder / "data") as libc:
        async with faulted_platform(folder, verdict, libc.environ) as trial:
            replicas = await _replicas(trial)
            for shift_s in (HOUR_S, -HOUR_S):
                what = f"clock {shift_s:+} s"
                with libc.fault(wall_s=shift_s):
                    await _wrong(trial, what, timedelta(seconds=shift_s), flags.seconds)
                await _wrong(trial, f"{what}, and right again", timedelta(), flags.seconds)
            now = await _replicas(trial)
            trial.verdict.expect(now == replicas, f"replicas were {replicas} and are {now}")
    return verdict


async def _wrong(trial: FaultedPlatform, what: str, shift: timedelta, seconds: float) -> None:
    async with trial.asked(what) as told:
        await asyncio.sleep(seconds)
        await _upload(trial, what)
    for name, one in told.items():
        trial.verdict.expect(not one.codes, f"{what}: {name} was refused: {dict(one.codes)}")
        trial.verdict.expect(one.answered > 0, f"{what}: {name} was never answered")
    await trial.recovered(what)
    newest = (await trial.platform.ask("turning", "/events"))[0]
    stamp = datetime.fromisoformat(newest["at"])
    trial.verdict.figures[f"{what}: it says"] = str(stamp)
    late = abs(stamp - datetime.now(UTC) - shift)
    trial.verdict.expect(late < NEARLY, f"{what}: the clock was not wrong: an event is of {stamp}")


async def _upload(trial: FaultedPlatform, what: str) -> None:
    """A model in parts, over links that the control plane signs with its time."""
    version = what.replace(" ", "").replace(",", "-").replace("+", "p")
    tar = tar_of(
        {"model.yaml": f"name: numbers\nversion: '{version}'\n", "weights": bytes(200_000)}
    )
    parts = [tar[:100_000], tar[100_000:]]
    manifest = {**MODEL_MANIFEST, "size_bytes": len(tar)}
    one = await trial.rough.register("model", "numbers", version, manifest)
    upload, done = await trial.rough.send_parts(one, parts)
    body = {"upload_id": upload, "parts": done}
    await trial.rough.call("PATCH", f"{one}/complete_multipart_upload", body)
    await trial.rough.call("PATCH", f"{one}/finish_upload", {"status": "success", "reason": ""})


async def _replicas(trial: FaultedPlatform) -> list[tuple[str, int]]:
    """The ready replicas of what never sleeps, with how often each was started again."""
    ready = await trial.platform.replicas("steady", "ready")
    return [(replica["id"], replica["restarts"]) for replica in ready]
