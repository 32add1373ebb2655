"""What can go wrong with the test cluster, each a sentence for whoever asked for it."""

from __future__ import annotations


class TestClusterError(Exception):
    """The test cluster cannot do what it was asked for."""

    __test__ = False


class CannotRunHere(TestClusterError):
    """This machine lacks what a cluster needs: Go, root, a feature of its kernel, a package."""
