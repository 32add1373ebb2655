"""AutoscalerError
├── ScalingInvalid   a deployment's `scaling` block is not valid
├── MemoryInvalid    what a decider has learnt cannot be read back
├── TraceInvalid     a file of requests to simulate is not valid
└── SimulationLost   a process that simulated was killed
"""

from __future__ import annotations


class AutoscalerError(Exception):
    """Base of what the autoscaler raises; `code` is stable."""

    code = "autoscaler_error"


class ScalingInvalid(AutoscalerError):
    """A field of the `scaling` block is wrong; `path` names it. Show the message to the user."""

    code = "scaling_invalid"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class MemoryInvalid(AutoscalerError):
    """A stored memory was not written by this version. Start without it: it can be learnt again."""

    code = "memory_invalid"


class TraceInvalid(AutoscalerError):
    """A trace has an invalid row or header; the message names the file and the line."""

    code = "trace_invalid"


class SimulationLost(AutoscalerError):
    """A process that simulated was killed, and its results are lost."""

    code = "simulation_lost"
