"""Which tables of instance types `hotplate.toml` may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotplate.deploy.quantities import GIB
from hotplate.deploy.workload import Resources
from hotplate.platform.errors import BadSetting
from hotplate.platform.instance_type import InstanceType, load_instance_types
from hotplate.platform.settings import PlatformSettings, load


def test_types_are_tables_of_the_file_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "hotplate.toml"
    assert load_instance_types(file) == {}
    file.write_text(
        '[platform]\nport = 1\n[instance_types."gpu.l4.1"]\ncpus = 8\nmemory = "32GiB"\n'
        'gpus = 1\ngpu_type = "L4"\nprice = 0.8\n'
        "[instance_types.small]\ncpus = 0.5\nmemory = 1"
    )
    assert list(load_instance_types(file).items()) == [
        ("gpu.l4.1", InstanceType(Resources(8, 32 * GIB, 1), "L4", 0.8)),
        ("small", InstanceType(Resources(0.5, GIB))),
    ]
    assert load(PlatformSettings, "platform", flags={}, environ={}, file=file).port == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[instance_types.a]\ncpu = 1", "no such setting; did you mean 'cpus'?"),
        ("[instance_types.a]\nmemory = 1", "cpus is missing; say how much"),
        ("[instance_types.a]\ncpus = 1", "memory is missing; say how much"),
        ("[instance_types.a]\ncpus = 0\nmemory = 1", "cpus 0 is not allowed"),
        ("[instance_types.a]\ncpus = -1\nmemory = 1", "-1"),
        ("[instance_types.a]\ncpus = 1\nmemory = 0", "memory 0 is not allowed"),
        ("[instance_types.a]\ncpus = 1\nmemory = '2XB'", "2XB"),
        ("[instance_types.a]\ncpus = 1\nmemory = 1\ngpus = 1.5", "1.5"),
        ("[instance_types.a]\ncpus = 1\nmemory = 1\ngpu_type = 'L4'", "gpu_type 'L4' is not"),
        ("[instance_types.a]\ncpus = 1\nmemory = 1\nprice = -1", "price -1 is not allowed"),
        ("[instance_types.a]\ncpus = 1\nmemory = 1\nprice = inf", "price inf is not allowed"),
        ("[instance_types.a]\ncpus = 1\nmemory = 1\nprice = 'x'", "price 'x' is not allowed"),
        ("[instance_types]\na = 1", 'must be a table: [instance_types."a"]'),
        ("[instance_types.'a b']\ncpus = 1", "a name has 1 to 63 letters"),
        ("[instance_type.a]\ncpus = 1", "did you mean 'instance_types'?"),
        ("instance_types = 1", "'instance_types' must be a table"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_table(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "hotplate.toml"
    file.write_text(table)
    with pytest.raises(BadSetting, match=re.escape(said)) as raised:
        load_instance_types(file)
    assert str(file) in str(raised.value)
