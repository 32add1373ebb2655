"""What still breaks a rule of the tree. These lists only shrink."""

from __future__ import annotations

READMES_BY_FILE: set[str] = set()
LARGE_CLASSES: set[str] = {
    "SimNode",
    "SlotQueue",
}
TESTS_REACHING_IN: set[str] = {
    "tests/cache/catalog/test_tree_folder.py: _spare",
    "tests/cache/swarm/test_chunk_picker.py: _step",
    "tests/platform/processes/test_leftovers.py: _guard",
    "tests/platform/processes/test_leftovers.py: _scope",
    "tests/serving/gateway/replicas/test_relay.py: _keeper",
    "tests/support/cache/stores.py: _fs",
    "tests/support/cache/stores.py: _root",
    "tests/support/cache/stores.py: _storage",
}
