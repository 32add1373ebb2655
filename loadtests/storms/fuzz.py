"""Millions of malformed requests and answers against the gateway, judged by another parser.

atheris (libFuzzer) makes them from those of the tests and from inputs that reached new code.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from loadtests.harness.verdict import Verdict
from tests.support.gateway.wire import ANSWERS, OTHER_STATUS, READ, REFUSED

INPUT_BYTES = 1500
HANG_S = 5
MEMORY_MIB = 1024
PARTS = (
    *("GET ", "POST ", "HEAD ", "OPTIONS * ", "/", "http://b/", " HTTP/1.1", " HTTP/1.0"),
    *("Host: a", "Content-Length: ", "Transfer-Encoding: chunked", "Expect: 100-continue"),
    *("Connection: close", "Connection: keep-alive", "Connection: Upgrade", "Upgrade: h2c"),
    *("Upgrade: websocket", "TE: trailers", "Trailer: X", "X-Forwarded-For: c", "gzip, "),
    *("HTTP/1.1 200 OK", "HTTP/1.1 100 Continue", "HTTP/1.1 304 Not Modified", "X-Request-Id: "),
    *("\r\n", "\r\n\r\n", "\n", "\r", "0\r\n\r\n", "3\r\nabc\r\n", ";a=b", "\0", " ", "\t", ", "),
)
DONE = re.compile(r"Done (\d+) runs in")
COVERED = re.compile(r"cov: (\d+) ft: (\d+)")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many to try")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    parser.add_argument("--corpus", type=Path, help="folder that keeps what reached new code")


async def run(flags: argparse.Namespace, folder: Path) -> Verdict:
    verdict = Verdict()
    if importlib.util.find_spec("atheris") is None:
        verdict.broken.append("atheris is not installed; run `pip install atheris` for this storm.")
        return verdict
    corpus = flags.corpus or folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(_seeds()):
        (corpus / f"known-{number}").write_bytes(data[:INPUT_BYTES])
    words = folder / "words"
    words.write_text("".join(f'"{_quoted(part)}"\n' for part in PARTS))
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.programs.http_fuzzer", str(corpus)),
        *(f"-runs={flags.inputs}", f"-seed={flags.seed}", f"-max_len={INPUT_BYTES}"),
        *(f"-dict={words}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MIB}"),
        f"-artifact_prefix={folder}/",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode(errors="replace")
    done = DONE.search(printed)
    covered = COVERED.findall(printed)
    tried = int(done[1]) if done else 0
    verdict.figures["inputs"] = tried
    verdict.figures["inputs/s"] = round(tried / (time.monotonic() - began))
    verdict.figures["edges and features covered"] = covered[-1] if covered else "none"
    verdict.broken += [f"kept as {path}; {printed[-1500:]}" for path in _kept(folder)]
    if tried < flags.inputs and not verdict.broken:
        verdict.broken.append(f"{tried} of {flags.inputs} inputs were tried; {printed[-1500:]}")
    return verdict


def _kept(folder: Path) -> list[Path]:
    """Copies the inputs that failed, as libFuzzer left them, because the folder is removed."""
    return [Path(shutil.copy(path, f"fuzz-{path.name}")) for path in folder.glob("*-*")]


def _seeds() -> Iterator[bytes]:
    """The known inputs, as `http_fuzzer.py` reads them."""
    for data, _ in READ.values():
        yield b"\1" + data
    for data in (*REFUSED.values(), *(data for _, data in OTHER_STATUS.values())):
        yield b"\1" + data
    for data in ANSWERS.values():
        yield b"\x80" + data
        yield b"\x81" + data


def _quoted(part: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in part.encode())
