from __future__ import annotations

import ast

import pytest

from tests.mutation.mutants import mutants


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a < b <= 2", ["return a <= b <= 2", "return a < b < 2", "return a < b <= 3"]),
        ("a += b * 2", ["a -= b * 2", "a += b / 2", "a += b * 3"]),
        ("return not a", ["return a"]),
        ("return a and True", ["return a or True", "return a and False"]),
        ("a.clear()", ["pass"]),
        ("return max(a, b)", ["return min(a, b)"]),
        ("raise ValueError(f'{a + 1} is wrong')", []),
    ],
)
def test_each_mutant_has_one_fault(line: str, found: list[str]) -> None:
    source = f"LIMIT = 3\n\ndef f(a: int, b: int = LIMIT) -> int:\n    {line}\n"
    made = [ast.unparse(one.module).splitlines()[-1].strip() for one in mutants(source)]
    assert sorted(made) == sorted(found)
    assert all(one.line == 4 for one in mutants(source))


def test_a_mutant_says_which_lines_are_run_with_it() -> None:
    source = "def f(a=1):\n    if (\n        a < 2\n    ):\n        return a + 3\n"
    found = {one.change.partition(" ")[0]: one.run for one in mutants(source)}
    assert found == {"1": None, "a": range(5, 6), "2": range(2, 5), "3": range(5, 6)}
