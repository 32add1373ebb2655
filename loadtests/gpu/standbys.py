"""A CUDA context made in a standby, and used in the replica that it becomes."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hotplate.deploy.local.host import ProcessHost
from hotplate.deploy.local.records import Records
from hotplate.deploy.local.runtime import Command
from hotplate.deploy.local.standby.process import StandbyProcess
from hotplate.deploy.local.standby.warm_process import gpu_variables
from hotplate.deploy.process.detached import Process
from hotplate.deploy.sandbox.cgroups import Cgroups
from hotplate.deploy.sandbox.isolation import Isolation
from hotplate.deploy.sandbox.process_scope import REPLICA_DIR
from hotplate.deploy.workload import Resources
from loadtests.gpu.finding import Finding, ensure
from loadtests.gpu.hardware import machine
from loadtests.gpu.programs import Bento, PlainServer, Program, work, workload

LIMIT_RATIO = 0.5
"""The share of a cold start that one from a standby may take; without a GPU it takes a tenth."""


def plain(folder: Path) -> Iterator[Finding]:
    title = "a context made in a standby, used in a replica"
    yield asyncio.run(_compared(folder, PlainServer(), title))


def bento(folder: Path) -> Iterator[Finding]:
    yield asyncio.run(_compared(folder, Bento(), "a bento's replica from a standby"))


async def _compared(folder: Path, program: Program, title: str) -> Finding:
    """The first answer of a replica that was a standby, beside that of a cold process."""
    gpu = machine().gpus[0].index
    os.mkdir(folder / "cold")
    cold_s, cold = await _cold(folder / "cold", program, gpu)
    warm_s, warm = await _warm(folder / "warm", program, gpu)
    for answer in (cold, warm):
        ensure(answer["right"], "a product that was computed on the GPU is wrong")
        ensure(answer["count"] == 1, f"a process with one GPU sees {answer['count']}")
    ensure(not cold["had_context"], "a cold process had a context before it made one")
    ensure(warm["had_context"], "the standby had no context when it became a replica")
    ratio = warm_s / cold_s
    figure = f"first answer in {warm_s:.2f} s, cold {cold_s:.2f} s: x {ratio:.2f}"
    return Finding(title, figure, ratio <= LIMIT_RATIO, f"to reach: x {LIMIT_RATIO}")


async def _cold(folder: Path, program: Program, gpu: int) -> tuple[float, dict[str, Any]]:
    command, log = program.command(workload(1.0), folder), folder / "log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = _environ(command, folder, gpu) | {"HOTPLATE_LISTEN_FD": str(listener.fileno())}
        began = time.perf_counter()
        process = Process.spawn(
            command.argv, env, command.cwd, log, command.job, [listener.fileno()]
        )
        try:
            answer = await asyncio.to_thread(work, _address(listener))
            return time.perf_counter() - began, answer
        finally:
            await process.terminate(0)


async def _warm(folder: Path, program: Program, gpu: int) -> tuple[float, dict[str, Any]]:
    records = Records(folder)
    records.create("replica")
    work_folder = records.empty_work("replica")
    command = program.command(workload(1.0), work_folder)
    cgroups = Cgroups(folder, machine().usable_bytes)
    gpus = (gpu,)
    host = ProcessHost(records=records, cgroups=cgroups, isolation=Isolation())
    standby = await StandbyProcess.start("standby", program.warm(folder), gpus, host)
    try:
        await standby.until_warm()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            began = time.perf_counter()
            env = _environ(command, work_folder, gpu)
            await standby.start_replica("replica", command, env, listener, Resources())
            answer = await asyncio.to_thread(work, _address(listener))
            took_s = time.perf_counter() - began
        ensure(answer["pid"] == standby.process.pid, "another process answers")
        return took_s, answer
    finally:
        await standby.end()
        cgroups.close()


def _environ(command: Command, folder: Path, gpu: int) -> dict[str, str]:
    """The command's variables and those that an engine adds."""
    return {**command.env, **gpu_variables((gpu,)), REPLICA_DIR: str(folder)}


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"
