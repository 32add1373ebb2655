"""The whole platform on a machine with a GPU: the stock client deploys a service that uses it.

Its environment has this Python's PyTorch and NumPy, which take minutes to install anew. Everything
else comes from wherever `uv` is told to look: without a network, `UV_OFFLINE` and `UV_FIND_LINKS`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from loadtests.gpu.finding import CheckFailed, Finding, ensure
from loadtests.harness.child_process import ROOT, BenchmarkFailed, checkout_environ
from loadtests.harness.installation import Installation, deploy, installation, until

NAME = "kernel"
SERVICE = """
import bentoml
from kernel import answer, has_context

HAD_CONTEXT = has_context()

@bentoml.service(
    image=bentoml.images.Image(
        python_version="{python}", lock_python_packages=False
    ).python_packages(*{wheels}),
    resources={{"gpu": 1}},
)
class Kernel:
    def __init__(self) -> None:
        answer()

    @bentoml.api
    def work(self) -> dict:
        return answer() | {{"had_context": HAD_CONTEXT}}
"""
POLICY = {"scale_down_stabilization_window": 1}
SERVICES = {"Kernel": {"scaling": {"min_replicas": 0, "max_replicas": 1, "policy": POLICY}}}
CALLERS = 4
SERIES_S = 40.0
READY_S = 90.0
GIB = 1 << 30


def deployed(folder: Path) -> Iterator[Finding]:
    yield from asyncio.run(_deployed(folder))


async def _deployed(folder: Path) -> list[Finding]:
    # The platform's `uv` is to find this Python.
    os.environ["PATH"] = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"
    try:
        async with installation(folder, checkout_environ()) as here:
            return await _found(here, _project(folder / "project"))
    except BenchmarkFailed as error:
        raise CheckFailed(str(error)) from None


async def _found(here: Installation, project: Path) -> list[Finding]:
    began = time.perf_counter()
    url, _ = await deploy(here, project, NAME, SERVICES)
    first = await _answer(url)
    deployed_s = time.perf_counter() - began
    _look(first)
    figures = await _figures(here, url)
    ensure(figures["gpu_share"] > 0, "a replica that computes has a GPU share of 0 in its series")
    starts = []
    for _ in range(3):
        await here.asleep(NAME)
        began = time.perf_counter()
        _look(again := await _answer(url))
        starts.append((time.perf_counter() - began, again["had_context"]))
    from_zero = ", ".join(f"{s:.2f} s{' with a context' * had}" for s, had in starts)
    share, memory = figures["gpu_share"], figures["gpu_memory_bytes"] / GIB
    busy_s = sum(filter(None, figures["gpu_s"]["busy"]))
    return [
        Finding("`bentoml deploy` until the first answer of a GPU", f"{deployed_s:.1f} s", True),
        Finding(
            "a deployment's series", f"{share:.0%} of a GPU, {memory:.2f} GiB; {busy_s:.1f} s busy"
        ),
        Finding("from zero: first answer of a GPU", from_zero, True),
    ]


async def _figures(here: Installation, url: str) -> dict[str, Any]:
    """The deployment's series, with the most that its GPU's columns had, while it is called."""
    found: dict[str, Any] = {}

    async def known() -> bool:
        found.update(await here.series(NAME))
        return any(found["gpu_share"]) and any(found["gpu_memory_bytes"])

    async with _called(url):
        await until(known, SERIES_S, "the series say nothing of the GPU")
    for column in ("gpu_share", "gpu_memory_bytes"):
        found[column] = max(filter(None, found[column]))
    return found


@asynccontextmanager
async def _called(url: str) -> AsyncIterator[None]:
    async def call() -> None:
        while True:
            _look(await _answer(url))

    callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
    try:
        yield
    finally:
        for caller in callers:
            caller.cancel()
            with suppress(asyncio.CancelledError):
                await caller


async def _answer(url: str) -> dict[str, Any]:
    import aiohttp

    limit = aiohttp.ClientTimeout(READY_S)
    async with (
        aiohttp.ClientSession(timeout=limit) as http,
        http.post(f"{url}/work", json={}) as answer,
    ):
        ensure(answer.status == 200, f"{answer.status}: {(await answer.text())[:300]}")
        found: dict[str, Any] = await answer.json()
        return found


def _look(answer: dict[str, Any]) -> None:
    ensure(answer["right"], "a product that the service computed on the GPU is wrong")
    ensure(answer["count"] == 1, f"a service with one GPU sees {answer['count']}")


def _project(folder: Path) -> Path:
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    here = [f"./wheels/{_borrowed(name, wheels).name}" for name in ("torch", "numpy")]
    (folder / "service.py").write_text(SERVICE.format(python=python, wheels=here))
    (folder / "kernel.py").write_text((ROOT / "loadtests" / "gpu" / "kernel.py").read_text())
    return folder


def _borrowed(name: str, folder: Path) -> Path:
    """A wheel of that name that leads to this Python's package, and to all that it needs."""
    package = import_module(name)
    version = str(package.__version__).partition("+")[0]
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}_of_another_python.pth": f"{Path(str(package.__file__)).parents[1]}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel
