"""What is shown of environments of pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hotplate.cache.manifest import Manifest, ManifestEntry
from hotplate.cache.store.blobs import BlobStore
from hotplate.serving.replica.environments.overview import BUILDING, FAILED, READY
from hotplate.serving.replica.pods.notes import about, digest_of, name_of
from hotplate.serving.replica.pods.overview import EnvironmentsOfPods
from tests.serving.replica.pods.test_job_environments import FAILED as NO_COLOUR
from tests.serving.replica.pods.test_job_environments import FIRST, Bench, bench_of

OLD = digest_of("acme", "old", "runtime:1")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench_of(tmp_path, BlobStore(f"file://{tmp_path}/store"))
    yield made
    await made.environments.close()


@pytest.fixture
def shown(bench: Bench) -> EnvironmentsOfPods:
    return EnvironmentsOfPods(bench.environments, bench.blobs)


def keep_old(blobs: BlobStore) -> None:
    """One that an earlier control plane has had built."""
    with blobs.writer() as writer:
        writer.write(b"12345")
        entry = ManifestEntry("lib/a.py", mtime=0.0, blob=writer.commit())
    manifest = blobs.put_manifest(Manifest((entry,)))
    went = {"built_at": 100, "build_s": 2.5, "log_tail": ["one", "two"]}
    note = {**about("acme", OLD, "runtime:1", "old-bento"), "manifest": manifest, **went}
    blobs.put_note(name_of(OLD), note)


def test_what_an_earlier_control_plane_has_had_built(
    bench: Bench, shown: EnvironmentsOfPods
) -> None:
    keep_old(bench.blobs)
    (view,) = shown.overview.views(shown.folders(["acme"]))
    assert (view.owner, view.digest, view.state) == ("acme", OLD, READY)
    assert (view.size_bytes, view.built_at, view.build_s) == (5, 100.0, 2.5)
    assert view.log_tail == ("one", "two")
    assert view.bentos == {"old-bento"}
    assert shown.overview.build_log(["acme"], "old-bento") == (view, "one\ntwo\n")
    assert shown.overview.views(["other"]) == []
    assert shown.overview.build_log(["acme"], "another-bento") is None


async def test_one_is_shown_while_it_is_built_and_when_it_has_failed(
    bench: Bench, shown: EnvironmentsOfPods
) -> None:
    await bench.begin()
    (view,) = shown.overview.views(["acme"])
    assert (view.state, view.size_bytes) == (BUILDING, 0)
    assert view.bentos == {FIRST.bento_manifest}
    found = shown.overview.build_log(["acme"], FIRST.bento_manifest)
    assert found == (view, "it builds\n")
    bench.builds.end(NO_COLOUR)
    await bench.failure()
    (view,) = shown.overview.views(["acme"])
    assert view.state == FAILED
    assert view.log_tail == ("it builds",)


async def test_a_failure_is_shown_after_its_control_plane_has_gone(
    tmp_path: Path, bench: Bench
) -> None:
    await bench.begin()
    bench.builds.end(NO_COLOUR)
    await bench.failure()
    later = bench_of(tmp_path / "later", bench.blobs)
    shown = EnvironmentsOfPods(later.environments, later.blobs)
    (view,) = shown.overview.views(["acme"])
    assert (view.state, view.log_tail) == (FAILED, ("colour?",))
    assert shown.overview.build_log(["acme"], FIRST.bento_manifest) == (view, "colour?\n")
    await later.failure()
    (view,) = shown.overview.views(["acme"])
    assert (view.state, view.log_tail) == (FAILED, ("colour?",))


async def test_those_used_last_come_first(bench: Bench, shown: EnvironmentsOfPods) -> None:
    keep_old(bench.blobs)
    await bench.begin()
    assert [view.digest == OLD for view in shown.overview.views(["acme"])] == [False, True]
    bench.builds.publish()
    bench.builds.end()
    await bench.ready()
    states = {view.digest: view.state for view in shown.overview.views(["acme"])}
    assert set(states.values()) == {READY}
    assert len(states) == 2


def test_notes_call_organizations_as_folders_do(shown: EnvironmentsOfPods) -> None:
    assert shown.folders(["acme"]) == {"acme": "acme", ".shared": ""}
