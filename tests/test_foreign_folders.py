"""Folders that a replica, a build or an upload writes are read through one module only.

All other uses of files by platform processes are listed here, function by function, with the owner
of the files. A function that is not listed, or does more than is listed, must use
`hotplate.machine.foreign_folder`, or be listed with the owner of the files that it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from hotplate.serving.replica.payload import PAYLOAD
from tests.support.file_uses import uses

ROOT = Path(__file__).parents[1]
SCOPE = ("deploy/hotplate/deploy", "serving/hotplate/serving/replica", "platform/hotplate/platform")


class Ours(NamedTuple):
    """Why functions of a module may touch files directly, and what each does."""

    whose: str
    functions: Mapping[str, str] | None = None
    """By name, what it uses; None = the module never comes to a foreign folder."""


KERNEL = Ours("the kernel's: /proc and control groups")
INSIDE = Ours("it runs inside the walls, or before the program does, as whoever is held by them")
OPERATOR = Ours("the operator's and the platform's own, in the data directory's first two levels")
OURS = {
    "deploy/sandbox/escape_attempts.py": INSIDE,
    "deploy/sandbox/cgroups.py": KERNEL,
    "deploy/sandbox/process_scope.py": KERNEL,
    "deploy/process/group_usage.py": KERNEL,
    "deploy/sandbox/launch.py": Ours("a pipe to the entrance", {"Launch.entered_now": "open"}),
    "deploy/sandbox/isolation_check.py": Ours("the folder of the doctor's own program"),
    "deploy/sandbox/escape_targets.py": Ours("folders that the doctor makes for its own program"),
    "deploy/local/machine.py": KERNEL,
    "deploy/process/procfs.py": KERNEL,
    "deploy/process/memory.py": KERNEL,
    "deploy/sandbox/builds.py": Ours(
        "the folder of packages, before a build is shown it", {"Builds.prepare": ".mkdir"}
    ),
    "deploy/process/logfile.py": Ours(
        "a descriptor of a regular file, by `open_file`; of a log, which lies beside the folder",
        {"append": "open", "tail": "open", "trim": ".stat open"},
    ),
    "deploy/process/detached.py": Ours(
        "/proc; a log, which lies beside the folder; memory",
        {
            "Process.command": ".read_bytes",
            "Process.set_oom_score": ".write_text",
            "document": "open",
            "launch": "os.open",
        },
    ),
    "deploy/cluster/builds/kept_logs.py": Ours("what the control plane writes of pods' logs"),
    "deploy/local/ended_logs.py": Ours("a folder of the engine's alone"),
    "deploy/local/records.py": Ours(
        "what lies beside the folder `work`, and that folder before anything runs in it",
        {
            "Records.__init__": ".mkdir",
            "Records.clear_leavings": "os.listdir",
            "Records.create": ".mkdir",
            "Records.end_birth": ".unlink",
            "Records.empty_work": ".mkdir",
            "Records.end": ".rename",
            "Records.groups": ".read_text",
            "Records.ids": "os.listdir",
            "Records.load": ".read_text",
            "Records.marks": ".read_text",
            "Records.note_birth": ".write_text",
            "Records.note_groups": ".write_text",
            "Records.standbys": ".iterdir",
            "_owner_in": ".read_text",
            "_write": ".replace open os.open",
        },
    ),
    "deploy/local/standby/channel.py": Ours(
        "a log, which lies beside the folder", {"WarmChannel.give": "os.open"}
    ),
    "deploy/local/standby/warm_process.py": Ours("its folder before it runs", {"housed": ".mkdir"}),
    "deploy/sandbox/family.py": Ours(
        "/proc; a log, which lies beside the folder",
        {
            "Family.begin": ".write_text os.open",
            "Family.put_up": "os.open",
            "NestedNamespaces.found_in": "os.stat",
            "NestedNamespaces.hold": "os.stat",
        },
    ),
    "deploy/local/standby/learnt.py": Ours(
        "what the engine has noted; whether an environment's interpreter is there",
        {"recall": ".exists .read_text"},
    ),
    "deploy/local/admission.py": Ours("what the engine has noted", {"_recalled": ".read_text"}),
    "deploy/sandbox/private_places.py": Ours("folders of the machine that walls hide"),
    "deploy/sandbox/isolation.py": Ours(
        "whether a path is there; the folder `work` itself; a log, which lies beside it; folders "
        "for layers, before anything runs there; /proc",
        {
            "Isolation._lines": ".exists",
            "Isolation.claim": "os.chown",
            "_about": ".lstat",
            "_pid_of": ".read_text",
            "furnish": ".mkdir os.open",
        },
    ),
    "platform/backups/archive.py": Ours("the file of a backup, which the operator names"),
    "platform/backups/kept_keys.py": OPERATOR,
    "platform/commands/backup.py": Ours("files that the operator names"),
    "platform/commands/cache.py": OPERATOR,
    "platform/cli.py": OPERATOR,
    "platform/commands/roles/agent.py": OPERATOR,
    "platform/commands/flags.py": OPERATOR,
    "platform/dashboard/assets.py": Ours("the wheel's own"),
    "platform/upkeep/health_metrics.py": OPERATOR,
    "platform/commands/roles/gateway.py": OPERATOR,
    "platform/dashboard/rendering.py": Ours("the program's own"),
    "platform/commands/loadtest.py": OPERATOR,
    "platform/loadtest/asking/forms.py": Ours("files that the operator names"),
    "platform/loadtest/asking/payloads.py": Ours("a file that the operator names"),
    "platform/loadtest/comparison.py": OPERATOR,
    "platform/loadtest/live/load_test.py": Ours("the report's folder, which the operator names"),
    "platform/loadtest/load_maker.py": Ours("the report's folder, which the operator names"),
    "platform/loadtest/page.py": Ours("the program's own"),
    "platform/loadtest/plan.py": OPERATOR,
    "platform/loadtest/report.py": OPERATOR,
    "platform/loadtest/samples.py": OPERATOR,
    "platform/processes/data_dir.py": OPERATOR,
    "platform/commands/doctor.py": OPERATOR,
    "platform/processes/key_file.py": OPERATOR,
    "platform/processes/event_log.py": OPERATOR,
    "platform/upkeep/health.py": OPERATOR,
    "platform/processes/ports.py": KERNEL,
    "platform/leadership/candidate.py": KERNEL,
    "platform/leadership/seat.py": OPERATOR,
    "platform/processes/privacy.py": OPERATOR,
    "platform/commands/secret_flags.py": OPERATOR,
    "platform/settings.py": OPERATOR,
    "platform/commands/simulate.py": OPERATOR,
    "platform/store/schema.py": OPERATOR,
    "platform/processes/terminal.py": Ours(
        "logs of the platform's roles", {"_size_of": ".exists .stat", "_whole_lines": ".open"}
    ),
    "serving/replica/bento.py": Ours(
        "the agent's tree of a bento, whose bento.yaml was measured", {"read_bento": ".read_bytes"}
    ),
    "serving/replica/environments/build.py": Ours(
        "the build's folder before anything runs in it; its log, which lies beside it; the "
        "operator's configuration; the agent's tree; a source of our own",
        {
            "Build._log_bytes": ".stat",
            "Build._make_folders": ".is_file .mkdir shutil.copyfile",
            "Build._output": ".open",
            "Build._placing": ".read_text",
            "Build._reads": ".exists",
            "Build._places": ".is_dir",
            "Build._run": ".read_text",
            "Build._write": ".open",
        },
    ),
    "serving/replica/environments/bytecode.py": INSIDE,
    "serving/replica/environments/masked_log.py": Ours(
        "a pipe and the log, which lie beside the build's folder",
        {
            "MaskedLog.__enter__": ".unlink os.mkfifo os.open",
            "MaskedLog.__exit__": ".unlink",
            "MaskedLog._write": ".open",
        },
    ),
    "serving/replica/pods/orders.py": Ours("the program's own"),
    "serving/replica/pods/overview.py": Ours("what the control plane has written of builds' logs"),
    "serving/replica/pods/bentos.py": Ours(
        "descriptions of bentos, which the control plane alone writes and reads",
        {
            "Bentos._read": ".is_dir",
            "Bentos._write": ".is_dir .mkdir .rename shutil.rmtree",
            "Bentos._write_file": ".mkdir .write_bytes",
            "Bentos.get": "shutil.rmtree",
        },
    ),
    "serving/replica/memory_folders.py": Ours(
        "the machine's memory: names in it, and whether a replica's folder is there",
        {"_sweep": ".exists .glob"},
    ),
    "serving/replica/compile_cache.py": Ours(
        "drafts and notes of our own; a replica's folder before anything runs in it; an agent's "
        "tree of compiled code",
        {
            "CompileCache.__init__": "shutil.rmtree",
            "CompileCache._publish": ".mkdir",
            "CompileCache._use": ".iterdir .mkdir .stat .unlink .write_text",
            "CompileCache.forget": ".glob .read_text .unlink",
            "CompileCache.manifests": ".glob",
            "CompileCache.notes": ".glob",
            "CompileCache.take": ".mkdir",
            "_copy": ".mkdir .replace os.walk shutil.copyfile",
            "_copy_out": ".mkdir .open",
            "_manifest_of": ".read_text",
        },
    ),
    "serving/replica/environments/builder.py": Ours(
        "the folders of environments, and what is noted beside what was built",
        {
            "EnvironmentBuilder._owners": ".glob",
            "EnvironmentBuilder._start": ".unlink",
            "EnvironmentBuilder._sweep": ".rename",
            "EnvironmentBuilder.adopt": ".exists .is_dir .read_text .replace .write_text",
            "EnvironmentBuilder.forget": ".rename",
            "EnvironmentBuilder.manifests": ".glob",
            "_matching": ".glob",
        },
    ),
    "serving/replica/environments/folder.py": Ours(
        "what is noted beside what was built, where no build writes",
        {
            "EnvironmentFolder._read": ".read_bytes",
            "EnvironmentFolder._write": ".chmod .replace .write_text",
            "EnvironmentFolder.built": ".stat",
            "EnvironmentFolder.empty": ".mkdir .touch",
            "EnvironmentFolder.found": ".is_dir",
            "EnvironmentFolder.note_modules": ".read_bytes",
            "EnvironmentFolder.note_taken": ".mkdir",
            "attempts": ".glob .is_dir .is_symlink",
            "oldest_at": ".glob .stat",
        },
    ),
    "serving/replica/hub_cache.py": Ours(
        "the agent's trees, and a replica's folder before anything runs in it",
        {
            "_link_or_copy": ".hardlink_to .open shutil.copyfileobj",
            "add_hub_model": ".mkdir .stat .symlink_to .write_text os.chmod os.walk",
        },
    ),
    "serving/replica/environments/interpreter.py": Ours(
        "the folder of interpreters", {"Interpreters._search": ".mkdir"}
    ),
    "serving/replica/payload.py": Ours("the program's own, and copies that nobody writes"),
    "serving/replica/environments/spec.py": Ours(
        "the agent's tree of a bento",
        {"_file_digests": ".is_file .open .rglob", "_requirements": ".open"},
    ),
    "serving/replica/runtime.py": Ours(
        "a replica's folder before anything runs in it, and one beside it; the agent's trees",
        {
            "BentoRuntime._all_else": "shutil.rmtree",
            "BentoRuntime._command": ".is_dir",
            "_reads": ".exists",
        },
    ),
    "serving/replica/own_files.py": Ours(
        "a replica's folder before anything runs in it",
        {"OwnFiles._variables": ".is_dir", "OwnFiles.make": ".mkdir"},
    ),
    "serving/replica/environments/registry.py": Ours(
        "an environment that was built, when nothing of the build runs any more",
        {"bound_script": ".is_file .is_symlink .iterdir .open"},
    ),
    "serving/replica/environments/usage.py": Ours("notes of our own"),
}


def modules() -> list[str]:
    """Those of platform processes: `deploy/local/records.py`."""
    parts = tuple(part.removeprefix("hotplate.").replace(".", "/") for part in PAYLOAD)
    paths = sorted(path for folder in SCOPE for path in (ROOT / folder).rglob("*.py"))
    names = [str(path.relative_to(ROOT)).partition("/hotplate/")[2] for path in paths]
    return [name for name in names if not name.removesuffix(".py").startswith(parts)]


def found_in(name: str) -> dict[str, str]:
    """What each function of a module touches files with."""
    path = ROOT / name.partition("/")[0] / "hotplate" / name
    found: dict[str, set[str]] = {}
    for use in uses(path.read_text()):
        found.setdefault(use.function, set()).add(use.what)
    return {function: " ".join(sorted(whats)) for function, whats in found.items()}


def listed() -> dict[str, dict[str, str]]:
    """What stands in `OURS` of each module."""
    return {name: dict(ours.functions or {}) for name, ours in OURS.items()}


@pytest.mark.parametrize("name", modules())
def test_files_are_touched_only_where_it_is_said_whose_they_are(name: str) -> None:
    if name in OURS and OURS[name].functions is None:
        return
    assert found_in(name) == listed().get(name, {}), (
        "what is in a folder that a replica, a build or an upload writes is touched through "
        "hotplate.machine.foreign_folder; what is ours stands in OURS, with whose it is"
    )


def test_nothing_is_listed_that_is_not_there() -> None:
    assert set(OURS) <= set(modules())
    assert not [name for name in OURS if not found_in(name)]


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "f = open",
        "path.read_text()",
        "await asyncio.to_thread(path.read_bytes)",
        "work(path.iterdir)",
        "import os\nos.open(path, 0)",
        "from os import rename",
        "from shutil import rmtree",
        "import os as system",
        "shutil.rmtree(path)",
        "a.replace(b.rename(c), 'x')",
        "path.replace(other)",
        "Path(folder, name).open()",
    ],
)
def test_a_use_is_found(source: str) -> None:
    assert uses(source)


@pytest.mark.parametrize(
    "source",
    [
        "text.replace('a', 'b')",
        "ForeignFolder.open(path)",
        "foreign_folder.ForeignFolder.open(path)",
        "foreign_folder.read(path, 9)",
        "os.path.join(a, b)",
        "json.load(x)",
    ],
)
def test_what_touches_no_file_is_not_found(source: str) -> None:
    assert not uses(source)
