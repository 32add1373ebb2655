"""`hotplate loadtest` as a command: what it refuses, what it asks, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hotplate.platform.cli import main
from tests.platform.commands.loaded_service import LoadedService, route, serving
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.small_disk import MIB, fill, small_disk

HEADER = "arrival_s,service_s,deployment,organization\n"
ORGANIZATIONS = {"key": "hotplate/organization-header", "value": "X-Org"}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedService]:
    """No platform of this machine's user is found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving() as server:
        yield server


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"{at / 10},1,m{at % 2},acme\n" for at in range(20)))
    return path


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The sentence."""
    assert main(["loadtest", *flags]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("hotplate: ")
    return err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--shape", "constnat"], "--shape constnat is not one of"),
        (["--shape", "constnat"], "did you mean constant?"),
        (["--shape", ""], "--shape  is not one of"),
        (["--task", "--route", "/a?b=1"], "--route /a?b=1 has a query"),
        (["--rate", "nan"], "--rate nan is not a number from 0.0001 to 1e+06 requests/s"),
        (["--rate", "inf"], "--rate inf is not a number"),
        (["--rate", "1e12"], "--rate 1e12 is not a number"),
        (["--rate", "0"], "--rate 0 is not a number"),
        (["--rate", "-1"], "--rate -1 is not a number"),
        (["--rate", "ten"], "--rate ten is not a number"),
        (["--rate", "1e6", "--duration", "1h"], "a load test has at most 10000000"),
        (["--rate", "0.001", "--duration", "1s"], "no request would be sent"),
        (["--rate", "5", "--users", "3"], "--rate and --users exclude each other"),
        (["--users", "0"], "--users 0 is not a whole number from 1 to 100000"),
        (["--users", "1.5"], "--users 1.5 is not a whole number"),
        (["--users", "9", "--shape", "burst"], "--users cannot follow --shape burst"),
        (["--users", "9", "--predict"], "--predict needs to know when requests arrive"),
        (["--predict"], "--predict needs what the platform has learnt of the deployment"),
        (["--duration", "0s"], "--duration 0s is not a time from 1 s to 7 days"),
        (["--duration", "8d"], "--duration 8d is not a time"),
        (["--duration", "nan"], "--duration nan is not a time"),
        (["--duration", "1e3"], "--duration 1e3 is not a time"),
        (["--duration", "5 min"], "--duration 5 min is not a time"),
        (["--processes", "0"], "--processes 0 is not a whole number from 1 to 64"),
        (["--processes", "1000"], "--processes 1000 is not a whole number"),
        (["--seed", "-1"], "--seed -1 is not a whole number"),
        (["--seed", "x"], "--seed x is not a whole number"),
        (["--speed", "2"], "--speed is that of a trace"),
        (["--shape", "trace"], "--shape trace needs --trace FILE"),
        (["--route", "http://other/x"], "--route http://other/x is not a path of the deployment"),
        (["--route", "//other/x"], "--route //other/x is not a path"),
        (["--payload", "{"], "--payload { is not valid JSON"),
        (["--payload", "nothing.json"], "--payload nothing.json is neither JSON nor a file"),
        (["--organizations", "acme"], "--organizations needs the deployment's organization header"),
        (["--organizations", "acme=x"], "the weight of acme is not a whole number"),
        (["--fail-if", "p95_s >"], "p95_s >"),
        (["--fail-if", "p96_s > 1"], "p96_s"),
        (["--endpoint-token-file", "/none"], "--endpoint-token-file /none cannot be read"),
    ],
)
def test_flags_that_cannot_be_are_refused_in_a_sentence_before_anything_is_sent(
    service: LoadedService, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert said in refused(capsys, service.url, *flags)
    assert service.heard == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rate", "5"], "--trace says itself when requests arrive"),
        (["--users", "5"], "--trace says itself when requests arrive"),
        (["--shape", "ramp"], "--trace has its own shape: leave --shape ramp out"),
        (["--speed", "0"], "--speed 0 is not a number from 0.001 to 1e+06"),
        (["--speed", "inf"], "--speed inf is not a number"),
        ([], "--trace has requests for 2 deployments (m0, m1)"),
    ],
)
def test_flags_that_a_trace_excludes_are_refused(
    service: LoadedService,
    trace: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: str,
) -> None:
    assert said in refused(capsys, service.url, "--trace", str(trace), *flags)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        (HEADER, "has no requests"),
        ("a,b\n1,2\n", "column arrival_s is missing"),
        (HEADER + "soon,1,m,o\n", "line 2"),
        (HEADER + "nan,1,m,o\n", "arrival_s is nan"),
        ("\0", "is not a text file"),
        (None, "cannot be read"),
    ],
)
def test_a_trace_of_the_wrong_form_is_refused(
    service: LoadedService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    said: str,
) -> None:
    path = tmp_path / "wrong.csv"
    if content is not None:
        path.write_text(content)
    assert said in refused(capsys, service.url, "--trace", str(path))


def test_a_trace_for_none_of_the_deployments_requests_is_refused(
    service: LoadedService, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.deploy("m3")
    flags = ["--endpoint", service.url, "--trace", str(trace)]
    assert "--trace has no request for m3" in refused(capsys, "m3", *flags)


def test_a_target_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert "TARGET is missing" in refused(capsys)
    assert "TARGET is missing" in refused(capsys, "--fail-if", "p95_s > 1", "http://127.0.0.1:1")


def test_an_unknown_deployment_is_refused_with_the_nearest(
    service: LoadedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.deploy("embedder")
    said = refused(capsys, "embeder", "--endpoint", service.url)
    assert said == "hotplate: there is no deployment embeder; did you mean embedder?\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wanted": "terminated", "status": "terminated"}, "is terminated and answers nobody"),
        ({"status": "failed", "reason": "no wheel"}, "has failed (no wheel)"),
    ],
)
def test_a_deployment_that_answers_nobody_is_refused(
    service: LoadedService,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    said: str,
) -> None:
    service.deploy("embedder", **changes)
    for named in ("embedder", service.url):
        assert said in refused(capsys, named, "--endpoint", service.url)


def test_a_url_that_nobody_answers_is_refused(
    service: LoadedService, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert f"{url} does not answer (Connection refused)" in refused(capsys, url)
    assert "does not answer" in refused(capsys, "http://nobody.invalid")
    assert "no platform has run in" in refused(capsys, "embedder")
    for endpoint in ("nonsense", "http://a b", "http://[::1", f"{service.url}/a?"):
        said = refused(capsys, "embedder", "--endpoint", endpoint)
        assert f"{endpoint} is not a platform's URL" in said
    assert "no platform has run in" in refused(capsys, service.url, "--data", "/none")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (302, "redirects to http://127.0.0.1:1/elsewhere (302), and a load test follows no"),
        (401, "wants a token (401): name a file"),
        (500, "the service lists no method at /schema.json"),
    ],
)
def test_a_url_that_shows_no_schema_is_refused(
    service: LoadedService, capsys: pytest.CaptureFixture[str], status: int, said: str
) -> None:
    service.schema_status = status
    assert said in refused(capsys, service.url)


@pytest.mark.parametrize(
    ("schema", "flags", "said"),
    [
        ({"routes": [route("/a"), route("/b")]}, [], "2 methods: choose one by --route (/a, /b)"),
        ({"routes": []}, [], "lists no method"),
        ([1], [], "lists no method"),
        ({"routes": [route("/a")]}, ["--route", "/aa"], "no method /aa"),
        (
            {"routes": [route("/a", image={"type": "file"})]},
            [],
            "no payload can be made for /a: image: it is a file, and has no example; give one "
            "with --payload, in which @PATH names a file",
        ),
    ],
)
def test_a_method_that_is_not_clear_or_cannot_be_filled_is_refused(
    service: LoadedService,
    capsys: pytest.CaptureFixture[str],
    schema: object,
    flags: list[str],
    said: str,
) -> None:
    service.schema = schema
    assert said in refused(capsys, service.url, *flags)


def test_organizations_need_the_deployments_header(
    service: LoadedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.deploy("embedder")
    flags = ["--endpoint", service.url, "--organizations", "acme=3"]
    said = refused(capsys, "embedder", *flags)
    assert "needs a header by which embedder tells them apart" in said


def test_a_report_folder_that_is_not_empty_or_not_writable_is_refused_before_the_load(
    service: LoadedService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "report.json").touch()
    said = refused(capsys, service.url, "--report", str(tmp_path / "full"))
    assert "is not empty: name a new folder" in said
    (tmp_path / "file").touch()
    said = refused(capsys, service.url, "--report", str(tmp_path / "file"))
    assert "cannot hold a report" in said
    assert "cannot hold a report" in refused(capsys, service.url, "--report", "/proc/none")
    assert service.heard == []


def test_a_report_folder_on_a_full_disk_is_refused_before_the_load(
    service: LoadedService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path, MIB):
        said = refused(capsys, service.url, "--report", str(tmp_path / "report"))
    assert "cannot hold a report of up to 8 MiB: No space left on device" in said
    assert service.heard == []


def test_a_disk_that_becomes_full_ends_the_load_test_with_a_sentence(
    service: LoadedService,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with small_disk(tmp_path, MIB):
        fill(tmp_path, left_bytes=64 << 10)
        assert main(["loadtest", service.url, "--users", "9", "--duration", "1h"]) == 1
    err = capsys.readouterr().err
    assert f"the disk of {tmp_path} is full; name another folder in TMPDIR" in err
    assert "Traceback" not in err


def test_without_locust_the_line_that_installs_it_is_printed(
    service: LoadedService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "locust", None)
    said = refused(capsys, service.url)
    assert "pip install 'hotplate[loadtest]'" in said


# What is carried out -------------------------------------------------------------------------


def test_a_trace_is_asked_as_it_is_and_reported_with_what_the_platform_saw(
    service: LoadedService, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.deploy("m0", labels=[ORGANIZATIONS])
    folder = tmp_path / "reports" / "one"
    flags = ["--endpoint", service.url, "--trace", str(trace), "--organizations", "acme=3,beta=1"]
    flags += ["--report", str(folder), "--json", "--fail-if", "answered > 9", "failed > 0"]
    assert main(["loadtest", "m0", *flags]) == 3
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert json.loads((folder / "report.json").read_text()) == report
    assert {path.name for path in folder.iterdir()} > {"report.md", "report.html"}
    assert err.splitlines()[-1] == "hotplate: 'answered > 9' is true: it is 10"
    assert (report["target"], report["shape"], report["answered"]) == ("m0", "trace", 10)
    assert report["duration_s"] == 1.8 and report["complete"]
    assert [one["ok"] for one in report["thresholds"]] == [False, True]
    assert set(report["series"]["ready"]) >= {1}
    assert Counter(one.headers["X-Org"] for one in service.heard) == {"acme": 8, "beta": 2}
    assert {one.path for one in service.heard} == {"/encode"}
    assert all(isinstance(json.loads(one.body)["text"], str) for one in service.heard)


def test_a_file_is_sent_in_a_form_to_a_method_that_takes_files(
    service: LoadedService, tmp_path: Path
) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\r\n\0 pixels \n")
    service.schema = {"routes": [route("/v1/see", image={"type": "file"}, most={})]}
    payload = json.dumps({"image": f"@{picture}", "most": 3})
    flags = ["--route", "/see?x=1", "--payload", payload, "--rate", "20", "--duration", "1s"]
    assert main(["loadtest", service.url, *flags, "--fail-if", "failed > 0"]) == 0
    assert {one.path for one in service.heard} == {"/v1/see?x=1"}
    for heard in service.heard:
        assert heard.headers["Content-Type"].startswith("multipart/form-data; boundary=")
        assert b'name="image"; filename="cat.png"\r\n' in heard.body
        assert picture.read_bytes() in heard.body


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (422, 'with 422: {"detail": "text is too long"}; give it what it takes with --payload'),
        (302, "a load test follows no redirect: give the address that is meant"),
    ],
)
def test_a_service_that_refuses_whatever_it_is_sent_ends_the_load_test(
    service: LoadedService, capsys: pytest.CaptureFixture[str], status: int, said: str
) -> None:
    service.status, service.said = status, b'{"detail": "text is too long"}'
    assert main(["loadtest", service.url, "--users", "3", "--duration", "1h"]) == 1
    err = capsys.readouterr().err
    assert said in err and "/encode answered the first 20 requests with" in err
    assert "Traceback" not in err


@contextmanager
def loading(service: LoadedService, folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A command of its own that loads the service; nothing of it is left."""
    command = [sys.executable, "-m", "hotplate.platform.cli", "loadtest", service.url]
    run = subprocess.Popen(
        [*command, "--users", "2", "--duration", "1h", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        assert service.loaded.wait(PATIENCE_S)
        yield run
        assert [path.name for path in folder.glob("hotplate-loadtest-*")] == []
        assert _processes_of(folder) == {}
    finally:
        run.kill()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_and_the_report_is_of_what_was(
    service: LoadedService, tmp_path: Path, by: signal.Signals
) -> None:
    (tmp_path / "token").write_text("a-secret-that-nobody-sees\n")
    flags = ["--payload", "[1]", "--route", "/other", "--report", str(tmp_path / "report")]
    with loading(
        service, tmp_path, *flags, "--endpoint-token-file", str(tmp_path / "token")
    ) as run:
        ours = _processes_of(tmp_path)
        run.send_signal(by)
        out, err = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, "Traceback" in err) == (128 + by, False)
    assert len(ours) >= 2 and not any(b"a-secret" in words for words in ours.values())
    assert "The run was ended after" in out
    written = (tmp_path / "report" / "report.json").read_text()
    report = json.loads(written)
    assert report["answered"] > 0 and not report["complete"]
    assert "a-secret" not in written
    heard = service.heard[0]
    assert heard.headers["Authorization"] == "Bearer a-secret-that-nobody-sees"
    assert (heard.path, heard.body) == ("/other", b"[1]")


def test_a_load_maker_that_is_killed_is_a_sentence(service: LoadedService, tmp_path: Path) -> None:
    with loading(service, tmp_path) as run:
        for pid, words in _processes_of(tmp_path).items():
            if b"locust" in words:
                os.kill(pid, signal.SIGKILL)
        out, err = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, out) == (1, "")
    assert "hotplate: the load maker has ended by itself after" in err
    assert "Traceback" not in err


def _processes_of(folder: Path) -> dict[int, bytes]:
    """The arguments of each process that has something of the folder among them."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if f"{folder}/".encode() in words:
                    found[int(entry.name)] = words
    return found


def test_a_report_is_written_also_where_nobody_reads_what_is_printed(
    service: LoadedService, tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    flags = ["--duration", "1s", "--rate", "9", "--report", str(tmp_path / "report")]
    command = [sys.executable, "-m", "hotplate.platform.cli", "loadtest", service.url, *flags]
    with os.fdopen(write, "wb") as nobody:
        ended = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert json.loads((tmp_path / "report" / "report.json").read_text())["answered"] > 0


def test_two_reports_are_compared_without_a_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, "--compare", str(tmp_path), str(tmp_path))
    assert f"--compare {tmp_path} cannot be read" in said
    said = refused(capsys, "embedder", "--compare", str(tmp_path), str(tmp_path))
    assert "leave embedder out" in said
