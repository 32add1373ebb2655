"""`make demo`: from nothing to a served model, through Hotplate's public interfaces only.

It starts the platform, deploys `examples/embedder` with the stock `bentoml` client, calls it, puts
load on it, waits until it sleeps, wakes it, and stops everything. The exit status is 0 only if
every step succeeded.
"""

from __future__ import annotations

import sys
import threading
import time

from demo_platform import (
    ROOT,
    Failed,
    alive,
    ask,
    bentoml,
    call,
    console,
    deployment,
    embed,
    platform_running,
    processes_of,
    say,
    wait_until,
)

from hotplate.platform.commands.pages.deployment import phase_chart

EMBEDDER = ROOT / "examples" / "embedder"
SENTENCES = [
    "A cat sits on the mat.",
    "A kitten rests on a rug.",
    "Interest rates rose again in March.",
]
LOAD_S = 40
LONGEST_LOAD_S = 120
"""On a busy machine a second replica takes longer to start; the load waits for it that long."""
CLIENTS = 12


def main() -> int:
    began = time.monotonic()
    try:
        with platform_running() as pid:
            run(pid)
            left = processes_of(pid)
        still = [p for p in left if alive(p)]
        if still:
            raise Failed(f"{len(still)} processes are left running: {still}")
    except Failed as failure:
        console.print(f"\n[red]the demo failed:[/] {failure}")
        return 1
    except OSError as error:
        console.print(f"\n[red]the demo failed:[/] the platform does not answer: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"Nothing is left running. The whole demo took {time.monotonic() - began:.0f} s.")
    return 0


def run(pid: int) -> None:
    say("1. Save the model and log in, with the stock client")
    bentoml("cloud", "login")
    call([sys.executable, "save_model.py"], EMBEDDER)

    say("2. bentoml deploy: build, push the model (90 MB) and the service, start a replica")
    started = time.monotonic()
    bentoml("deploy", ".", "-f", "deployment.yaml", cwd=EMBEDDER, show=True)
    deployed_s = time.monotonic() - started
    url = deployment()["url"]
    vectors = embed(url, SENTENCES)
    answered_s = time.monotonic() - started
    console.print(
        f"   deployed in {deployed_s:.1f} s, first answer after {answered_s:.1f} s: {url}"
    )

    say("3. Three sentences and how alike they are")
    show_similarities(vectors)

    say("4. The first cold start, by phases (they overlap)")
    show_cold_start()

    say(f"5. {CLIENTS} clients ask for {LOAD_S} s")
    most = show_load(url)
    if most < 2:
        raise Failed(f"the load was served by {most} replica; more were expected")

    say("6. No more requests: it falls asleep")
    show_sleep()

    say("7. One request wakes it")
    started = time.monotonic()
    woken = embed(url, SENTENCES)
    console.print(f"   answered after {time.monotonic() - started:.1f} s, from zero replicas")
    if max(abs(a - b) for a, b in zip(vectors[0], woken[0], strict=True)) > 1e-4:
        raise Failed("the woken replica gives another embedding than the first one")
    show_cold_start()
    bentoml("deployment", "delete", "embedder")


def show_similarities(vectors: list[list[float]]) -> None:
    def alike(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    for number, sentence in enumerate(SENTENCES):
        row = "  ".join(f"{alike(vectors[number], other):5.2f}" for other in vectors)
        console.print(f"   {row}   {sentence}")
    if not alike(vectors[0], vectors[1]) > alike(vectors[0], vectors[2]) + 0.2:
        raise Failed("the two sentences about cats should be the most alike")


def show_cold_start() -> None:
    last = ask("/cold_starts?count=1")[0]
    for line in phase_chart(last["phases"]):
        console.print(f"   {line}")


def show_load(url: str) -> int:
    """Puts load on the deployment and shows it. Returns the largest number of ready replicas."""
    stop = threading.Event()
    counts = {"answered": 0, "failed": 0}
    lock = threading.Lock()
    text = [" ".join(SENTENCES * 4)] * 8

    def client() -> None:
        while not stop.is_set():
            try:
                embed(url, text)
                outcome = "answered"
            except Failed:
                outcome = "failed"
            with lock:
                counts[outcome] += 1

    threads = [threading.Thread(target=client, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    most = before = 0
    for second in range(0, LONGEST_LOAD_S, 2):
        if second >= LOAD_S and most > 1:
            break
        time.sleep(2)  # the chart has a line every two seconds
        state = deployment()["live"]
        ready = sum(replica["state"] == "ready" for replica in state["replicas"])
        most = max(most, ready)
        service = state["services"][0]
        rate, before = (counts["answered"] - before) / 2, counts["answered"]
        bar = "█" * ready + "░" * (len(state["replicas"]) - ready)
        console.print(
            f"   {second + 2:3d} s  {rate:6.1f} answers/s  {service['in_flight']:3d} in flight "
            f"{service['queued']:3d} queued  replicas {bar:4} {service['reason']}",
            soft_wrap=True,
        )
    stop.set()
    for thread in threads:
        thread.join(120)
    console.print(f"   {counts['answered']} answered, {counts['failed']} failed")
    if counts["failed"]:
        raise Failed(f"{counts['failed']} requests failed under load")
    return most


def show_sleep() -> None:
    started = time.monotonic()

    def asleep() -> bool:
        state = deployment()
        count = len(state["live"]["replicas"])
        console.print(
            f"   {time.monotonic() - started:3.0f} s  {count} replicas, {state['status']}"
        )
        return state["status"] == "scaled-to-zero" and count == 0

    wait_until(asleep, 60, lambda: "it does not fall asleep", pause_s=2)


if __name__ == "__main__":
    sys.exit(main())
