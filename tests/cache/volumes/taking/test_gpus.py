"""A node's kind of GPU is what its driver calls it."""

from __future__ import annotations

from pathlib import Path

from hotplate.cache.volumes.taking.gpus import gpu_kinds


def test_each_kind_is_named_once(tmp_path: Path) -> None:
    models = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"]
    for number, model in enumerate(models):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        about = f"Model: \t\t {model}\nIRQ:   \t\t 18\nGPU UUID: \t GPU-1\n"
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(about)
    (tmp_path / "0000:09:00.0").mkdir()
    assert gpu_kinds(tmp_path) == "NVIDIA A100-SXM4-40GB, NVIDIA H100 80GB HBM3"


def test_a_node_without_any_has_none(tmp_path: Path) -> None:
    assert gpu_kinds(tmp_path / "nowhere") == gpu_kinds(tmp_path) == ""
