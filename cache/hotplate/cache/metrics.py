"""The agent's metrics, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """The agent's metrics; counters are thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.origin_bytes = Counter(
            "hotplate_cache_origin_bytes",
            "Bytes of blobs read from the origin",
            registry=self.registry,
        )
        self.chunks = Counter(
            "hotplate_cache_chunks",
            "Chunks asked for, by source (origin, peer, disk) and result: verified, corrupt, "
            "failed, and of peers not_yet, cannot, busy, lacks, left, lied",
            ["source", "result"],
            registry=self.registry,
        )
        self._chunks_by: dict[tuple[str, str], Counter] = {}
        peer_bytes = Counter(
            "hotplate_cache_peer_bytes",
            "Bytes of chunks moved between this node and its peers, by direction: in, out",
            ["direction"],
            registry=self.registry,
        )
        self.peer_bytes_in, self.peer_bytes_out = map(peer_bytes.labels, ("in", "out"))
        self.bans = Counter(
            "hotplate_cache_bans",
            "Peers that gave wrong bytes and are no longer asked",
            registry=self.registry,
        )
        self.refusals = Counter(
            "hotplate_cache_refusals",
            "Requests of peers that got a 429, because all upload slots were taken",
            registry=self.registry,
        )
        self.arena_bytes = self._gauge("arena_bytes", "Memory of the arena in use")
        self.disk_bytes = self._gauge("disk_bytes", "Bytes of the disk tier")
        self.mended_chunks = self._gauge("mended_chunks", "Chunks that were wrong on disk")
        self.leases = self._gauge("leases", "Open files of replicas")

    def count_chunk(self, source: str, result: str) -> None:
        counter = self._chunks_by.get((source, result))
        if counter is None:  # kept: to find it by its labels takes several times as long
            counter = self._chunks_by[source, result] = self.chunks.labels(source, result)
        counter.inc()

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"hotplate_cache_{name}", help_text, registry=self.registry)

    @property
    def origin_bytes_total(self) -> int:
        return int(self.registry.get_sample_value("hotplate_cache_origin_bytes_total") or 0)
