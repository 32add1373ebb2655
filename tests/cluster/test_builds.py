"""Environments that Jobs build on real nodes: published, mounted elsewhere, failed, and hostile."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from hotplate.cache.manifest import Manifest
from hotplate.cache.origins.hubs import Hubs
from hotplate.cache.store.blobs import BlobStore
from hotplate.cache.volumes.ticket import Ticket, Use, key_of
from hotplate.deploy.cluster.api import ClusterApi
from hotplate.deploy.cluster.builds.jobs import ClusterBuildJobs
from hotplate.deploy.cluster.builds.spec import BuildSettings
from hotplate.deploy.errors import BeingPrepared
from hotplate.deploy.workload import Workload, WorkloadKey
from hotplate.machine.background import BackgroundTasks
from hotplate.serving.replica.errors import EnvironmentFailed
from hotplate.serving.replica.pods.bentos import Bentos
from hotplate.serving.replica.pods.environments import PodEnvironment
from hotplate.serving.replica.pods.job_environments import JobEnvironments
from hotplate.serving.replica.pods.runtimes import RuntimeImage
from hotplate.serving.replica.pods.settings import EnvironmentSettings
from hotplate.serving.replica.secret_values import SecretSet
from tests.cluster.agents import Agents
from tests.cluster.images.ours import reference
from tests.cluster.kubectl import Kubectl
from tests.cluster.release import Release
from tests.cluster.stand_ins import PACKAGES_VARIABLES
from tests.support.patience import until
from tests.support.replica.bentos import write_wheel

pytestmark = [pytest.mark.cluster, pytest.mark.together, pytest.mark.timeout(180)]
BUILDS = "hotplate-builds"
OURS = "--selector=hotplate.dev/organization=acme"
BUILT_WITHIN_S = 120.0
OWN = "./wheels/tiny-1.0-py3-none-any.whl"
RUNTIME = RuntimeImage("3.11", reference("hotplate-runtime"))
SETTINGS = BuildSettings(memory_bytes=512 << 20, disk_bytes=1 << 30, timeout_s=100, cpus=1)
USE = """
import json, subprocess
look = "import json, sys; {look}"
subprocess.run(["/hotplate/env/bin/python", "-c", look], check=True)
"""
HOSTILE = """
import ctypes, json, os, socket, ssl, urllib.error, urllib.request
from setuptools import setup

def tried(what):
    try:
        return what()
    except BaseException as error:
        return f"refused: {type(error).__name__}"

def ask(url):
    context = ssl._create_unverified_context()
    try:
        return urllib.request.urlopen(url, timeout=3, context=context).status
    except urllib.error.HTTPError as error:
        return error.code

def lent(path):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(5)
        agent.connect("/hotplate/agent.sock")
        agent.sendall(json.dumps({"open": path}).encode() + b"\\n")
        return agent.recv(4096).decode(errors="replace")

found = {
    "token": tried(lambda: os.listdir("/var/run/secrets")),
    "api": tried(lambda: ask("https://10.96.0.1/api/v1/namespaces/hotplate/secrets")),
    "store": sorted(name for name in os.environ if name.startswith("AWS_")),
    "hotplate": sorted(os.listdir("/hotplate")),
    "models": tried(lambda: os.listdir("/hotplate/models")),
    "bento": tried(lambda: open("/hotplate/bento/new", "w")),
    "root": tried(lambda: open("/usr/new", "w")),
    "node": tried(lambda: os.listdir("/var/lib/kubelet")),
    "user": os.getuid(),
    "mount": ctypes.CDLL(None).mount(b"x", b"/tmp", b"tmpfs", 0, None),
    "others": sorted(path for path in os.listdir("/proc") if path.isdigit())[:1],
    "lent": tried(lambda: lent("/hotplate/models/bert/v1/model.safetensors")),
}
HARM
setup(name="NAME", version="1.0", py_modules=[], description=json.dumps(found))
"""
LINK = """os.path.lexists("/hotplate/env/etc") or os.symlink("/etc", "/hotplate/env/etc")"""


@dataclass
class Bench:
    """A control plane's part, on this machine, and the agents of the release."""

    api: ClusterApi
    blobs: BlobStore
    agents: Agents
    kubectl: Kubectl
    folder: Path
    namespace: str
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    opened: list[JobEnvironments] = field(default_factory=list)
    bentos: int = 0

    def bento(self, requirements: str = "", **image: object) -> Manifest:
        """In the blob store; it has a wheel of its own, `tiny`, and the hostile source."""
        self.bentos += 1
        src = self.folder / f"bento{self.bentos}" / "src"
        write_wheel(src / "wheels", "tiny", f"x = {self.namespace!r}")
        for name, harm in (("evil", ""), ("link", LINK)):
            write_sdist(
                src / "wheels" / f"{name}-1.0.tar.gz",
                HOSTILE.replace("NAME", name).replace("HARM", harm),
            )
        wheels = {
            f"src/wheels/{path.name}": path.read_bytes() for path in (src / "wheels").iterdir()
        }
        about = {
            "spec": 2,
            "name": "hello",
            "version": f"v{self.bentos}",
            "image": {"python_version": "3.11", **image},
        }
        files: dict[str, bytes | None] = {
            "bento.yaml": yaml.safe_dump(about).encode(),
            "env/python/requirements.txt": f"{requirements}\n{OWN}\n".encode(),
            **wheels,
        }
        return replace(self.agents, folder=self.folder / f"bento{self.bentos}").keep(files)

    def builder(self, settings: BuildSettings = SETTINGS, **given: object) -> Builder:
        jobs = ClusterBuildJobs(self.api, settings, self.folder / "logs")
        self.tasks.start(jobs.run())
        about = EnvironmentSettings(
            settings.release,
            [RUNTIME],
            PACKAGES_VARIABLES,
            settings.memory_bytes,
            pauses_s=(600.0,),
        )
        key = key_of(self.agents.token)
        environments = JobEnvironments(self.blobs, jobs, key, replace(about, **given))  # type: ignore[arg-type]
        self.opened.append(environments)
        return Builder(self, environments, Bentos(self.blobs, self.folder / "known", Hubs()))

    async def close(self) -> None:
        """End what was begun, as a control plane that is killed."""
        for each in self.opened:
            await each.close()
        await self.tasks.cancel()

    async def kube(self, *arguments: str) -> str:
        return await asyncio.to_thread(self.kubectl, *arguments)

    async def nothing_left(self, name: str) -> None:
        """Returns when Job, Secret and pod of a build have gone."""

        async def gone() -> bool:
            kinds = "jobs,secrets,pods"
            return name not in await self.kube("get", kinds, "-n", BUILDS, "-o", "name")

        await until(gone)

    async def run(self, name: str, node: str, found: PodEnvironment, bento: str, look: str) -> str:
        """What a pod prints in the environment, on that node."""
        ticket = Ticket(
            namespace=self.namespace,
            service_account="default",
            organization="acme",
            deployment="hello",
            revision=1,
            service="Hello",
            use=Use.REPLICA,
            bento=bento,
            environment=found.manifest,
        )
        program = USE.replace("{look}", look)
        mounted = (self.namespace, name, node, self.agents.signed(ticket), program)
        await asyncio.to_thread(self.agents.mount, *mounted)
        where = f"--namespace={self.namespace}"
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        await self.kube("wait", ended, f"pod/{name}", where, "--timeout=60s")
        return (await self.kube("logs", name, where)).strip()


@dataclass
class Builder:
    """Who has environments built."""

    bench: Bench
    environments: JobEnvironments
    known: Bentos

    secrets: SecretSet = field(default_factory=SecretSet)

    async def of(self, manifest: str) -> PodEnvironment:
        """Raises what `Environments.of` does."""
        key = WorkloadKey("acme", "hello", 1, "Hello")
        given = Workload(key, "hello", "v1", manifest)
        bento = await self.known.get(manifest)
        return await self.environments.of(given, bento, self.secrets)

    async def built(self, manifest: str) -> PodEnvironment:
        """Raises `EnvironmentFailed`."""

        async def there() -> PodEnvironment | None:
            try:
                return await self.of(manifest)
            except BeingPrepared:
                return None
            except EnvironmentFailed as failed:
                failed.add_note("\n".join(failed.log))
                raise

        found = await until(there, BUILT_WITHIN_S)
        assert found is not None
        return found

    async def failure(self, manifest: str) -> EnvironmentFailed:
        with pytest.raises(EnvironmentFailed) as failed:
            await self.built(manifest)
        return failed.value

    async def said(self, manifest: str, words: str) -> BeingPrepared:
        """What is said while it is prepared, once it has these words."""

        async def says() -> BeingPrepared | None:
            try:
                await self.of(manifest)
            except BeingPrepared as being:
                return being if words in str(being) else None
            return None

        found = await until(says, BUILT_WITHIN_S)
        assert found is not None
        return found

    async def printed(self, manifest: str, line: str) -> None:
        """Returns when its log has that line."""

        async def has() -> bool:
            try:
                await self.of(manifest)
            except BeingPrepared as being:
                return line in await asyncio.to_thread(_lines, being.log)
            return False

        await until(has, BUILT_WITHIN_S)


@pytest.fixture
async def bench(
    installed: Release, kubeconfig: Path, namespace: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    kubectl = installed.kubectl
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl("label", "namespace", namespace, label)
    kubectl.wait("get", "serviceaccount", "default", f"--namespace={namespace}", timeout_s=30)
    agents = Agents(kubectl, "hotplate", tmp_path, installed.token("cluster"))
    api = await ClusterApi.connect(str(kubeconfig))
    made = Bench(api, agents.blobs(), agents, kubectl, tmp_path, namespace)
    yield made
    await made.close()
    await made.kube("delete", "jobs", "-n", BUILDS, OURS, "--wait=false")
    await api.close()


def write_sdist(path: Path, setup: str) -> None:
    name = path.name.removesuffix(".tar.gz")
    project = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    about = f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: 1.0\n"
    files = {"setup.py": setup, "pyproject.toml": project, "PKG-INFO": about}
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


async def test_an_environment_is_built_by_a_job_and_runs_on_both_nodes(bench: Bench) -> None:
    bento = bench.bento("idna==3.10", post_commands=["echo made > made && cat made"]).digest
    builder = bench.builder()
    await builder.printed(bento, "$ uv venv --relocatable --python python3.11 /hotplate/env")
    listed = json.loads(await bench.kube("get", "jobs", "-n", BUILDS, "-o", "json"))["items"]
    ours = [each for each in listed if _bento_of(each) == bento]
    assert [each["metadata"]["labels"]["hotplate.dev/role"] for each in ours] == ["build"]
    name = ours[0]["metadata"]["name"]
    found = await builder.built(bento)
    assert name == f"env-{found.digest[:16]}"
    log = builder.environments.log(found.digest).read_text()
    assert "\nmade\n" in log and " + idna==3.10\n" in log
    await bench.nothing_left(name)

    look = "import idna, tiny; print(json.dumps([idna.__version__, tiny.x, sys.prefix]))"
    for node in ("node1", "node2"):
        printed = await bench.run(f"use-{node}", node, found, bento, look)
        assert json.loads(printed) == ["3.10", bench.namespace, "/hotplate/env"]
    again = await bench.builder().built(bento)  # by its note
    assert again == found


async def test_each_failure_has_its_sentence_and_its_lines(bench: Bench) -> None:
    small = replace(SETTINGS, disk_bytes=128 << 20)
    quick = replace(SETTINGS, timeout_s=15)
    eats = "python3.11 -c 'x = bytearray(2 << 30)'"
    fills = "head -c 200M /dev/zero > /scratch/filled; sleep 90"
    cases: list[tuple[BuildSettings, dict[str, object], str]] = [
        (SETTINGS, {"requirements": "idna==3.10\nidna==3.9"}, "contradict each other"),
        (SETTINGS, {"post_commands": ["echo broken; exit 3"]}, "(broken)"),
        (SETTINGS, {"post_commands": [eats]}, "more than the 512 MiB of memory"),
        (small, {"post_commands": [fills]}, "more disk than builds may, which is 128 MiB"),
        (quick, {"post_commands": ["echo waits; sleep 60"]}, "took longer than 15 s"),
    ]

    async def check(settings: BuildSettings, given: dict[str, object], sentence: str) -> None:
        bento = bench.bento(**given).digest  # type: ignore[arg-type]
        failed = await bench.builder(settings).failure(bento)
        assert sentence in str(failed)
        assert not failed.retry
        assert failed.log

    async with asyncio.TaskGroup() as group:
        for case in cases:
            group.create_task(check(*case))


async def test_what_holds_a_build_back_is_said_meanwhile(bench: Bench) -> None:
    large = replace(SETTINGS, node_selector={"hotplate.test/size": "large"})
    bento = bench.bento("idna==3.10").digest
    builder = bench.builder(large)
    await builder.said(bento, "No node takes it: 0/")
    other = bench.bento("idna==3.9").digest
    unknown = bench.builder(runtimes=[RuntimeImage("3.11", "registry.invalid/none:1")])
    await unknown.said(other, "The image registry.invalid/none:1 is not there")
    forged = bench.builder()
    forged.environments = JobEnvironments(
        bench.blobs,
        forged.environments.jobs,
        key_of("another token"),
        EnvironmentSettings("hotplate", [RUNTIME]),
    )
    bench.opened.append(forged.environments)
    await forged.said(
        bench.bento("idna==3.8").digest, "was not signed by this cluster's control plane"
    )


async def test_a_build_whose_pod_is_killed_begins_anew(bench: Bench) -> None:
    command = "echo runs; sleep 4"
    bento = bench.bento(post_commands=[command]).digest
    builder = bench.builder()
    await builder.printed(bento, "runs")
    await bench.kube("delete", "pods", "-n", BUILDS, OURS, "--wait=false")
    await builder.said(bento, "The build begins anew.")
    found = await builder.built(bento)
    assert "The build begins anew." in builder.environments.log(found.digest).read_text()


async def test_a_control_plane_that_comes_back_follows_the_build_that_runs(bench: Bench) -> None:
    bento = bench.bento(post_commands=["echo runs; sleep 5"]).digest
    first = bench.builder()
    await first.printed(bento, "runs")
    await bench.close()
    listed = json.loads(await bench.kube("get", "jobs", "-n", BUILDS, "-o", "json"))["items"]
    (uid,) = [each["metadata"]["uid"] for each in listed if _bento_of(each) == bento]
    found = await bench.builder().built(bento)
    assert "runs" in first.environments.log(found.digest).read_text()
    events = await bench.kube("get", "events", "-n", BUILDS, "-o", "json")
    made = {
        each["involvedObject"]["uid"]
        for each in json.loads(events)["items"]
        if each["reason"] == "SuccessfulCreate"
        and each["involvedObject"]["name"] == f"env-{found.digest[:16]}"
    }
    assert made == {uid}


async def test_secrets_reach_the_build_alone_and_are_masked_in_its_log(bench: Bench) -> None:
    reads = 'test "$(cat $BENTOML_HOME/keys/key.txt)" = file-secret && echo got $TOKEN; sleep 2'
    bento = bench.bento(post_commands=[reads]).digest
    builder = bench.builder()
    files = {"keys/key.txt": "file-secret"}
    builder.secrets = SecretSet({"TOKEN": "variable-secret"}, files, bench.namespace)
    await builder.printed(bento, "got ***")
    shown = await bench.kube("get", "jobs,pods,events", "-n", BUILDS, "-o", "json")
    assert "-secret" not in shown
    found = await builder.built(bento)
    assert "-secret" not in builder.environments.log(found.digest).read_text()
    await bench.nothing_left(f"env-{found.digest[:16]}")


async def test_hostile_sources_find_nothing_and_leave_no_link(bench: Bench) -> None:
    bento = bench.bento("./wheels/evil-1.0.tar.gz").digest
    found = await bench.builder().built(bento)
    look = "from importlib.metadata import metadata; print(metadata('evil')['Summary'])"
    seen = json.loads(await bench.run("look", "node1", found, bento, look))
    assert seen == {
        "token": "refused: FileNotFoundError",
        "api": 403,
        "store": [],
        "hotplate": ["agent.sock", "bento", "env", "job.json", "parts"],
        "models": "refused: FileNotFoundError",
        "bento": "refused: OSError",
        "root": "refused: OSError",
        "node": "refused: FileNotFoundError",
        "user": 10001,
        "mount": -1,
        "others": ["1"],
        "lent": seen["lent"],
    }
    assert "is no file of a tree of this node" in seen["lent"]
    failed = await bench.builder().failure(bench.bento("./wheels/link-1.0.tar.gz").digest)
    assert "the link 'etc' leads to '/etc'" in str(failed)


def _lines(log: str) -> list[str]:
    return Path(log).read_text().splitlines() if log and Path(log).exists() else []


def _bento_of(job: dict[str, object]) -> str:
    """The digest of the bento that a Job's ticket names."""
    (volume,) = [
        each
        for each in job["spec"]["template"]["spec"]["volumes"]  # type: ignore[index]
        if each["name"] == "hotplate"
    ]
    content = volume["csi"]["volumeAttributes"]["hotplate.dev/ticket"].partition(".")[0]
    padded = content + "=" * (-len(content) % 4)
    return str(json.loads(base64.urlsafe_b64decode(padded))["bento"])
