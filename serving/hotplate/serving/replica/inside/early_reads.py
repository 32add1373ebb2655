"""Which environment variables were read while modules were imported: those came too early for
values that a replica brings later. Python >= 3.9, standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

LATE = frozenset(
    [
        "BENTOML_HOME",
        "BENTOML_CONFIG_OVERRIDES",
        "BENTOML_HF_CACHE_DIR",
        "PROMETHEUS_MULTIPROC_DIR",
        "TMPDIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    ]
)
"""Variables that differ for each replica and count although modules have read them: BentoML reads
its own again when it loads a service, and we renew what was made of the other two."""
READ_BY_NATIVE_CODE = (
    "PYTHON",
    "LD_",
    "LC_",
    "LANG",
    "TZ",
    "MALLOC_",
    "GLIBC_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "NUMEXPR_",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "TORCH_",
    "PYTORCH_",
    "HIP_",
    "ROCR_",
    "FSSPEC_",
    "TQDM_",
)
"""Beginnings of names whose reads by the interpreter and by libraries we do not see, or which are
found by iterating over all names."""


class EarlyReads:
    """Within the block, records each variable that Python code reads."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> EarlyReads:
        kind: Any = type(os.environ)
        self._stock = stock = kind.__getitem__
        names = self.names

        def noted(environ: Any, name: Any) -> Any:
            if isinstance(name, str):
                names.add(name)
            return stock(environ, name)

        kind.__getitem__ = noted
        return self

    def __exit__(self, *_: object) -> None:
        environ: Any = type(os.environ)
        environ.__getitem__ = self._stock


def read_too_early(
    names: set[str],
    before: Mapping[str, str],
    wanted: Mapping[str, str],
    unused: Collection[str] = (),
) -> list[str]:
    """Variables whose value in `wanted` differs from `before`, when `names` were read, but
    for those that are `unused`, even by libraries that read all there are."""
    return sorted(
        name
        for name in {*before, *wanted}
        if before.get(name) != wanted.get(name)
        and not (name in LATE or name in unused or name.startswith("HOTPLATE_"))
        and (name in names or name.startswith(READ_BY_NATIVE_CODE))
    )
