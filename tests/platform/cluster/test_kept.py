"""What a control plane of a cluster keeps itself: environments in use, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.cache.store.blobs import BlobStore
from hotplate.platform.cluster.kept import KeptByJobs, NotKept
from tests.serving.replica.pods.test_job_environments import Bench, bench_of
from tests.support.replica.build_jobs import MANIFEST


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench_of(tmp_path, BlobStore(f"file://{tmp_path}/store"))
    yield made
    await made.environments.close()


async def test_environments_in_use_are_named_to_the_collector_and_none_is_swept_from_here(
    bench: Bench,
) -> None:
    kept = KeptByJobs(bench.environments, bench.blobs)
    assert (kept.manifests(), kept.notes()) == (set(), set())
    await bench.begin()
    (job,) = bench.builds.begun
    assert kept.notes() == {f"environments/{job.digest}"}, "it is being made"
    bench.builds.publish()
    bench.builds.end()
    await bench.ready()
    assert kept.manifests() == {MANIFEST}
    assert await kept.sweep(lambda: set(), 0, 1e12) == {}

    async def nobody() -> set[str]:
        return set()

    assert await kept.gone(nobody) == ()
    await kept.forget(["acme"])
    assert kept.manifests() == {MANIFEST}
    assert [view.owner for view in kept.overview.views(["acme"])] == ["acme"]


async def test_of_compiled_code_and_copies_of_files_nothing_is_here() -> None:
    none = NotKept()
    none.forget(set())
    assert (none.manifests(), none.notes(), await none.idle_s()) == (set(), set(), {})
    assert not await none.delete("ab" * 32, 0.0)
