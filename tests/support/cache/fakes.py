"""Stand-ins for what an agent talks to, and the agent as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from blake3 import blake3

from hotplate.cache.errors import CacheError, NoSpace
from hotplate.cache.manifest import CHUNK_BYTES, Blob, Manifest, ManifestEntry, chunk_digest
from hotplate.cache.origins.blob_source import (
    BlobSource,
    ByteSource,
    FsspecOrigin,
    OnProgress,
    Origin,
    ignore,
)
from hotplate.cache.tiers.arena import Arena, Region
from tests.support.patience import PATIENCE_S


def blob_of(content: bytes) -> Blob:
    parts = range(0, len(content), CHUNK_BYTES)
    return Blob(len(content), tuple(chunk_digest(content[at : at + CHUNK_BYTES]) for at in parts))


def random_bytes(size: int, seed: int) -> bytes:
    return blake3(seed.to_bytes(8)).digest(length=size)  # five times as fast as `random`


def publish(root: Path, files: Mapping[str, bytes | None], mtime: float = 1e9) -> Manifest:
    """Puts a tree in a blob store's layout; None as content makes a folder."""
    entries = []
    for path, content in files.items():
        if content is None:
            entries.append(ManifestEntry(path, 0o755, mtime))
            continue
        blob = blob_of(content)
        target = root / "blobs" / blob.digest[:2] / blob.digest
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        mode = 0o755 if path.endswith(".sh") else 0o644
        entries.append(ManifestEntry(path, mode, mtime, blob))
    manifest = Manifest(tuple(entries))
    (root / "manifests").mkdir(exist_ok=True)
    (root / "manifests" / f"{manifest.digest}.json").write_bytes(manifest.to_bytes())
    return manifest


class PacedOrigin:
    """An origin of a given speed that can hold chunks back, damage them, or fail."""

    def __init__(self, origin: Origin, bytes_per_s: float = float("inf")) -> None:
        self._origin = origin
        self._bytes_per_s = bytes_per_s
        self._wire = threading.Lock()
        self._never = threading.Event()
        self._held: dict[tuple[str, int], threading.Event] = {}
        self._corrupt: dict[tuple[str, int], int] = {}
        self._news = threading.Condition()
        self.failure: CacheError | None = None
        """What every read of a blob fails with, when set."""
        self.reads: list[tuple[str, int]] = []
        """Blob and chunk of every read, in order of arrival."""

    def hold(self, blob: Blob, *indices: int) -> None:
        """Reads of these chunks wait until `release`."""
        for index in indices:
            self._held[(blob.digest, index)] = threading.Event()

    def release(self) -> None:
        for event in self._held.values():
            event.set()

    def corrupt(self, blob: Blob, index: int, times: int) -> None:
        """The next `times` reads of the chunk give a wrong byte."""
        self._corrupt[(blob.digest, index)] = times

    def wait_for_read(self, blob: Blob, index: int) -> None:
        """Returns when somebody has asked for the chunk."""
        with self._news:
            assert self._news.wait_for(
                lambda: (blob.digest, index) in self.reads, timeout=PATIENCE_S
            )

    def manifest(self, digest: str) -> Manifest:
        return self._origin.manifest(digest)

    def source(self, blob: Blob) -> ByteSource:
        return PacedSource(self, blob.digest, self._origin.source(blob))

    def read_into(self, source: PacedSource, offset: int, view: memoryview) -> None:
        key = (source.digest, offset // CHUNK_BYTES)
        with self._news:
            self.reads.append(key)
            self._news.notify_all()
        if self.failure is not None:
            raise self.failure
        if key in self._held:
            assert self._held[key].wait(PATIENCE_S)
        with self._wire:
            self._never.wait(len(view) / self._bytes_per_s)
        source.origins.read_into(offset, view)
        if self._corrupt.get(key, 0) > 0:
            self._corrupt[key] -= 1
            view[0] ^= 1


@dataclass(frozen=True)
class PacedSource:
    origin: PacedOrigin
    digest: str
    origins: ByteSource

    def read_into(self, offset: int, view: memoryview, on_progress: OnProgress = ignore) -> None:
        self.origin.read_into(self, offset, view)


class OriginServer:
    """An origin over HTTP, for an agent in another process: `url` is a blob store for fsspec."""

    def __init__(self, root: Path, origin: PacedOrigin) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                status, body = _answer(root, origin, self.path, asked)
                self.send_response(status)
                if status == 206 and asked is not None:
                    self.send_header("Content-Range", f"{asked.replace('=', ' ')}/*")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that were killed."""


def _answer(root: Path, origin: PacedOrigin, path: str, span: str | None) -> tuple[int, bytes]:
    kind, *_, name = path.strip("/").split("/")
    if kind == "manifests":
        file = root / path.strip("/")
        return (200, file.read_bytes()) if file.exists() else (404, b"")
    assert span is not None, "a blob is read in ranges"
    start, _, last = span.removeprefix("bytes=").partition("-")
    data = bytearray(int(last) + 1 - int(start))
    try:
        stored = BlobSource(FsspecOrigin(f"file://{root}"), name)
        PacedSource(origin, name, stored).read_into(int(start), memoryview(data))
    except CacheError:
        return 503, b""
    return 206, bytes(data)


class _ScantRegion(Region):
    def reserve(self, offset: int, length: int) -> None:
        if offset:
            raise NoSpace("the node's memory is full")


class ScantMemory(Arena):
    """A kernel that has no memory for what the arena's limit allows."""

    def allocate(self, digest: str, size_bytes: int) -> Region:
        super().allocate(digest, size_bytes).close()  # it counts, and ours takes its place
        return _ScantRegion(digest, size_bytes)


class AgentProcess:
    """A real agent; leaving the block kills it.

    Beside settings, `umask` is its own, and `without="shield"` takes the mount away by which what
    lies on disk is lent. `kubelet` is the folder of one, and `publish_s` how long that waits;
    `build_limits` are those by name, `given_up_s` for how long no tree leaves a full disk.
    `inside` is a command that runs it elsewhere.
    """

    _PROGRAM = """
import asyncio, ctypes, json, os, sys
from pathlib import Path
from hotplate.cache.tiers import private_mounts as own_mounts
def refuse(folder):
    raise OSError(1, "refused")
ctypes.CDLL(None).prctl(1, 9)  # dies with the test run: what it has mounted would stay
from hotplate.cache.agent import AgentSettings, serve
options = json.loads(sys.argv[1])
os.umask(options.pop("umask", 0o022))
if options.pop("without", "") == "shield":
    own_mounts.read_only = refuse
if "kubelet" in options:
    from hotplate.cache.catalog import trees
    from hotplate.cache.volumes import publishing
    from hotplate.cache.volumes.kubelet import Kubelet
    from hotplate.serving.replica.payload import make_payload
    trees.GIVEN_UP_S = options.pop("given_up_s", trees.GIVEN_UP_S)
    publishing.PUBLISH_S = options.pop("publish_s", publishing.PUBLISH_S)
    options["kubelet"] = Kubelet(Path(options["kubelet"]), "node1", make_payload)
if "build_limits" in options:
    from hotplate.cache.volumes.taking.foreign_tree import TreeLimits
    options["build_limits"] = TreeLimits(**options["build_limits"])
folders = {name: Path(options.pop(name)) for name in ("data_dir", "mount") if name in options}
settings = AgentSettings(**folders, **options)
asyncio.run(serve(settings, lambda url: print(url, flush=True)))
"""

    def __init__(
        self, data_dir: Path, origin_url: str, inside: Sequence[str] = (), **options: Any
    ) -> None:
        options |= {"data_dir": str(data_dir), "origin_url": origin_url}
        if "mount" in options:
            options["mount"] = str(options["mount"])
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-c", self._PROGRAM, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.url = self.process.stdout.readline().strip()
        self.refusal = "" if self.url else self.process.stderr.read()
        self.socket = str(data_dir / "agent.sock")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def content(*path: str | Path) -> bytes | None:
    """A file's bytes, as a program that knows nothing of the agent reads them; None where it
    cannot open it."""
    try:
        return Path(*path).read_bytes()
    except (FileNotFoundError, PermissionError):
        return None


def exists(*path: str | Path) -> bool:
    return Path(*path).exists()
