"""The parser in C with which BentoML reads a bento's YAML; runs in the replica (Python >= 3.9).

PyYAML has it where it was built with libyaml, as its wheels are, and BentoML uses the one in
Python: a tenth of what a replica's start takes once everything is imported. What services read
themselves is left alone.
"""

from __future__ import annotations

from typing import Any


class CompiledYaml:
    """The module `yaml`, but for `safe_load`."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def safe_load(self, stream: Any) -> Any:
        """As `yaml.safe_load`; raises YAMLError."""
        return self._stock.load(stream, Loader=self._stock.CSafeLoader)


def parse_in_c() -> None:
    """Has BentoML read bentos so, where that is possible. A second call does nothing."""
    import yaml
    from bentoml._internal.bento import bento

    if yaml.__with_libyaml__ and getattr(bento, "yaml", None) is yaml:
        vars(bento)["yaml"] = CompiledYaml(yaml)
