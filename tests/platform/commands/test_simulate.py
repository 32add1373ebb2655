"""`hotplate simulate` as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from hotplate.platform.cli import main

HEADER = "arrival_s,service_s,deployment,organization\n"
POLICIES = ["ours", "knative-kpa", "hpa", "bentocloud", "ray-serve", "kubeai", "modal-idle"]
SVG = "{http://www.w3.org/2000/svg}"


def darkest(image: Image.Image, x: float, y: float, around: int) -> int:
    """Of the pixels that are so near, 0 to 255."""
    box = (int(x) - around, int(y) - around, int(x) + around, int(y) + around)
    return min(image.crop(box).convert("L").tobytes())


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"{at * 7},5,m{at % 3},acme\n" for at in range(60)))
    return str(path)


def test_the_json_has_the_documented_keys(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", trace, "--policy", "all", "--json"]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert list(policies) == POLICIES
    for figures in policies.values():
        assert list(figures["gpu_hours"]) == ["busy", "idle", "starting", "standby", "total"]
        assert list(figures["wait_s"]) == ["mean", "p50", "p95", "p99"]
        assert list(figures["occupancy"]) == ["queued", "running", "span_s"]
        assert figures["requests"] == 60
        assert {"starts", "share_over_1s", "share_over_5s", "cold_hits"} < set(figures)


def test_ours_is_the_default_and_a_higher_price_waits_less(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = []
    for price in ("1", "100000"):
        flags = ["--price", price, "--cold-start", "20", "--concurrency", "1", "--json"]
        assert main(["simulate", "--trace", trace, *flags]) == 0
        (figures,) = json.loads(capsys.readouterr().out)["policies"].values()
        waits.append(figures["wait_s"]["mean"])
    assert waits[1] < waits[0]


def test_a_flag_that_is_given_twice_adds_to_what_it_said_before(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = ["--trace", trace, "--trace", trace, "--policy", "ours", "--policy", "hpa", "--json"]
    assert main(["simulate", *twice]) == 0
    policies = json.loads(capsys.readouterr().out)["policies"]
    assert main(["simulate", "--trace", trace, "--json"]) == 0
    once = json.loads(capsys.readouterr().out)["policies"]["ours"]
    assert list(policies) == ["ours", "hpa"]
    assert policies["ours"]["requests"] == 2 * once["requests"]


def test_hardware_can_be_told(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--standby", "auto", "--instances", "3", "--weight", "acme=2", "--quota", "acme=2"]
    assert main(["simulate", "--trace", trace, *flags, "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)["policies"].values()
    assert figures["gpu_hours"]["standby"] > 0
    assert figures["requests"] == 60


def test_who_reads_no_further_is_no_failure_with_a_traceback(trace: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hotplate.platform.cli", "simulate", "--trace", trace]
    with os.fdopen(write, "wb") as nobody:
        ended = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_people_get_a_table(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", trace, "--policy", "hpa", "ours"]) == 0
    said = capsys.readouterr().out
    assert "hpa" in said and "ours" in said and "GPU-hours" in said


def test_every_decision_is_written_with_its_reason(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    assert main(["simulate", "--trace", trace, "--decisions", str(path)]) == 0
    decided = [json.loads(line) for line in path.read_text().splitlines()]
    assert {one["deployment"] for one in decided} == {"m0", "m1", "m2"}
    assert decided[0] | {"reason": ""} == {
        "policy": "ours",
        "at_s": 0.0,
        "deployment": "m0",
        "live": 0,
        "desired": 1,
        "granted": 1,
        "reason": "",
    }
    assert "no replica" in decided[0]["reason"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--policy", "knative"], "did you mean knative-kpa?"),
        (["--policy", "Knative"], "did you mean knative-kpa?"),
        (["--policy", "all", "fool"], "--policy fool is not one of"),
        (["--cold-start", "soon"], "--cold-start soon is not a number"),
        (["--cold-start", "nan"], "--cold-start nan is not a number"),
        (["--cold-start", "1e308"], "--cold-start 1e308 is not a number from 0 to 10000000"),
        (["--price", "-1"], "--price -1 is not a number"),
        (["--concurrency", "0"], "--concurrency 0 is not a whole number"),
        (["--instances", "1.5"], "--instances 1.5 is not a whole number"),
        (["--standby", "some"], "--standby some is not a whole number"),
        (["--standby", "1000000000"], "is not a whole number from 0 to 1000"),
        (["--instances", "9" * 400], "is not a whole number from 1 to 1000000"),
        (["--weight", "acme"], "--weight acme is not ORGANIZATION=NUMBER"),
        (["--weight", "acme=0"], "--weight of acme: 0 is not a number above 0"),
        (["--quota", "acme=0"], "--quota of acme: 0 is not a whole number from 1"),
        (["--quota", "acme=0.5"], "--quota of acme: 0.5 is not a whole number from 1"),
        (["--decisions", "/nowhere/at/all"], "cannot be written"),
        (["--decisions", "/dev/full"], "--decisions /dev/full cannot be written: No space"),
        (["--decisions", ""], "cannot be written"),
        (["--plot", ""], "the plot is an SVG or a PNG"),
        (["--plot", "/nowhere/at/all.svg"], "cannot be written"),
        (["--plot", "/nowhere/at/all.png"], "cannot be written"),
        (["--plot", "run.jpg"], "--plot run.jpg: the plot is an SVG or a PNG; name a file *.svg"),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    trace: str, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert main(["simulate", "--trace", trace, *flags]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_wrong_trace_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(HEADER + "1,1,a,b\n0,1,a,b\n")
    assert main(["simulate", "--trace", str(path), "--policy", "all", "--json"]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "line 3" in printed.err and printed.err.count("\n") == 1


def test_figures_of_a_run_without_end_are_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.csv"
    path.write_text(HEADER + "0,9999999,a,acme\n" * 20000)
    assert main(["simulate", "--trace", str(path), "--policy", "modal-idle"]) == 0
    said = capsys.readouterr().out
    assert "55555550.00" in said and "…" not in said


def test_a_run_can_be_seen(trace: str, tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    assert main(["simulate", "--trace", trace, "--plot", str(path)]) == 0
    root = ElementTree.parse(path).getroot()
    lines = list(root.iter(f"{SVG}polyline"))
    curves = [one.get("points", "") for one in lines if one.get("fill") != "none"]
    assert len(curves) == 3
    heights = [{point.split(",")[1] for point in curve.split()} for curve in curves]
    assert all(len(some) > 3 for some in heights), "demand, replicas and waits move"
    words = [one.text or "" for one in root.iter(f"{SVG}text")]
    assert words[0] == "ours: 60 requests to 3 deployments"
    assert words[-1].startswith("minutes since the first request")


def test_a_png_shows_what_the_svg_shows(trace: str, tmp_path: Path) -> None:
    vector, pixels = tmp_path / "run.svg", tmp_path / "run.PNG"
    assert main(["simulate", "--trace", trace, "--plot", str(vector)]) == 0
    assert main(["simulate", "--trace", trace, "--plot", str(pixels)]) == 0
    root = ElementTree.parse(vector).getroot()
    with Image.open(pixels) as image:
        assert image.format == "PNG"
        assert image.size == tuple(2 * int(root.get(side, "")) for side in ("width", "height"))
        for line in root.iter(f"{SVG}polyline"):
            for point in line.get("points", "").split():
                x, y = (2 * float(part) for part in point.split(","))
                assert darkest(image, x, y, 4) < 250, "a line goes there"
        for words in root.iter(f"{SVG}text"):
            x, y = (2 * float(words.get(part, "")) for part in ("x", "y"))
            assert darkest(image, x, y - 8, 16) < 100, words.text


def test_a_png_without_what_paints_it_is_one_sentence(
    trace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # as where it is not installed
    assert main(["simulate", "--trace", trace, "--plot", str(tmp_path / "run.svg")]) == 0
    capsys.readouterr()
    assert main(["simulate", "--trace", trace, "--plot", str(tmp_path / "run.png")]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "needs the Python package pillow" in printed.err and printed.err.count("\n") == 1
