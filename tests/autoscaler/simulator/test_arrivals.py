"""Traces are read as written, or refused with the place and the reason."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hotplate.autoscaler.errors import TraceInvalid
from hotplate.autoscaler.simulator import arrivals
from hotplate.autoscaler.simulator.arrivals import RequestTrace, read

HEADER = "arrival_s,service_s,deployment,organization\n"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read_one(path: Path) -> dict[str, RequestTrace]:
    return read([path], random.Random(0))


def test_requests_are_sorted_by_deployment(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "0,1.5,a,acme\n0.5,0,b,beta\n2,1,a,acme\n")
    assert read_one(path) == {
        "a": RequestTrace("acme", [0.0, 2.0], [1.5, 1.0]),
        "b": RequestTrace("beta", [0.5], [0.0]),
    }


def test_files_are_merged_by_arrival_and_may_be_packed(tmp_path: Path) -> None:
    first = written(tmp_path, HEADER + "1,1,a,acme\n", "first.csv")
    second = tmp_path / "second.csv.gz"
    second.write_bytes(gzip.compress((HEADER + "0,2,a,acme\n3,3,a,acme\n").encode()))
    assert read([first, second], random.Random(0))["a"].service_s == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_read_once(pack: Callable[[bytes], bytes]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb") as file:
        file.write(pack((HEADER + "0,2,a,acme\n").encode()))
        file.close()
        assert read_one(Path(f"/dev/fd/{reader}")) == {"a": RequestTrace("acme", [0.0], [2.0])}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_a_spreadsheet_writes_is_read(
    tmp_path: Path, pack: Callable[[bytes], bytes], mark: str, end: str
) -> None:
    rows = ['"more","arrival_s","service_s","deployment","organization"', '"x","0","1","a,b","é"']
    path = tmp_path / "sheet.csv"
    path.write_bytes(pack((mark + end.join([*rows, "", ""])).encode()))
    assert read_one(path) == {"a,b": RequestTrace("é", [0.0], [1.0])}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEADER, "has no requests"),
        ("arrival_s,service_s,deployment\n0,1,a\n", "column organization is missing"),
        ("0,1,a,acme\n", "column arrival_s is missing"),
        ("data/\0\0\0chunk-0.csv\0\0\n0,2.0,1.5,Gamma,0.4,1.1\n", "unpack it"),
        (HEADER + "2,1,a,acme\n1,1,a,acme\n", "line 3: arrival_s 1.0 is before 2.0"),
        (HEADER + "-1,1,a,acme\n", "line 2: arrival_s is -1.0"),
        (HEADER + "0,-1,a,acme\n", "line 2: service_s is -1.0"),
        (HEADER + "nan,1,a,acme\n", "line 2: arrival_s is nan"),
        (HEADER + "1e12,1,a,acme\n", "line 2: arrival_s is .* from 0 to 10000000000"),
        (HEADER + "0,1e9,a,acme\n", "line 2: service_s is .* from 0 to 10000000"),
        (HEADER + '0,1,"a\nb",acme\nx,1,a,acme\n', "line 4: 'x,1,a,acme'"),
        ("arrival_s," + HEADER + "0,0,1,a,acme\n", "column arrival_s appears twice"),
        (HEADER + "0,inf,a,acme\n", "line 2: service_s is inf"),
        (HEADER + "zero,1,a,acme\n", "line 2: 'zero,1,a,acme' is not a row"),
        (HEADER + "0,1,a\n", "line 2: '0,1,a' is not a row"),
        (HEADER + "0,1,,acme\n", "line 2: deployment is empty"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TraceInvalid, match=said) as refused:
        read_one(path)
    assert str(path) in str(refused.value)


def test_more_requests_than_memory_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_REQUESTS", 1000)
    paths = [
        written(tmp_path, HEADER + "0,1,a,acme\n" * 500, "first.csv"),
        written(tmp_path, HEADER + "0,1,a,acme\n" * 500, "second.csv"),
    ]
    assert len(read(paths, random.Random(0))["a"].arrival_s) == 1000
    endless = written(tmp_path, "0,9999,1.5,Gamma,0.444,1.126\n" * 10_000, "rates.csv")
    with pytest.raises(TraceInvalid, match="more than 1000 requests"):
        read([*paths, endless], random.Random(0))


def test_a_file_that_is_not_there_or_broken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceInvalid, match="cannot be read"):
        read_one(tmp_path / "none.csv")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress((HEADER + "0,1,a,acme\n" * 999).encode())[:40])
    with pytest.raises(TraceInvalid, match="cannot be read"):
        read_one(cut)


def test_azures_trace_tells_times_and_tokens(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,5000,10\n"
        "2023-11-16 18:17:04.4799600,1000,100\n"
    )
    found = read_one(written(tmp_path, text, "code.csv"))
    assert found["code"].arrival_s == [0.0, 0.5]
    assert found["code"].service_s == pytest.approx([1.2, 2.2])


def test_mooncakes_trace_tells_milliseconds_and_tokens(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 0, "input_length": 5000, "output_length": 10, "hash_ids": [0]}\n'
        '{"timestamp": 1500, "input_length": 1000, "output_length": 100, "hash_ids": [0]}\n'
    )
    found = read_one(written(tmp_path, text, "talk.jsonl"))
    assert found["talk"].arrival_s == [0.0, 1.5]
    assert found["talk"].service_s == pytest.approx([1.2, 2.2])


def test_servegens_rates_are_drawn_from_their_distribution(tmp_path: Path) -> None:
    text = "0,2.0,1.5,Gamma,0.444,1.126\n600,0,0,,0,0\n1200,4.0,2.0,Weibull,0.543,0.1\n"
    path = written(tmp_path, text, "chunk-7.csv")
    times = read_one(path)["chunk-7"].arrival_s
    assert times == read_one(path)["chunk-7"].arrival_s, "the seed settles it"
    assert not [at for at in times if 600 <= at < 1200]
    assert sum(at < 600 for at in times) == pytest.approx(1200, rel=0.2)
    assert sum(at >= 1200 for at in times) == pytest.approx(2400, rel=0.2)


def test_files_of_one_name_in_several_folders_are_several_deployments(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "chunk-1-trace.csv" for folder in ("m-mid", "m-large")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("0,2.0,1.5,Gamma,0.444,1.126\n")
    other = written(tmp_path, "0,2.0,1.5,Gamma,0.444,1.126\n", "chunk-2-trace.csv")
    found = read([*paths, other, other], random.Random(0))
    assert set(found) == {"chunk-2-trace", *map(str, paths)}
    counts = {name: len(arrivals.arrival_s) for name, arrivals in found.items()}
    assert counts[str(paths[0])] == pytest.approx(1200, rel=0.2)
    assert counts["chunk-2-trace"] == pytest.approx(2400, rel=0.2), (
        "a file that is given twice counts twice"
    )


@pytest.mark.parametrize(
    ("first", "wrong"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,many,10"),
        ("0,2.0,1.5,Gamma,0.444,1.126", "600,inf,1.5,Gamma,0.444,1.126"),
        ("0,2.0,1.5,Gamma,0.444,1.126", "600,2.0,1.5,Weibull,0,1.126"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}', "[1]"),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1}',
            '{"timestamp": 1, "input_length": 1, "output_length": 1' + "0" * 400 + "}",
        ),
    ],
)
def test_a_wrong_line_of_a_public_trace_is_refused(tmp_path: Path, first: str, wrong: str) -> None:
    with pytest.raises(TraceInvalid, match="line 2"):
        read_one(written(tmp_path, f"{first}\n{wrong}\n"))
