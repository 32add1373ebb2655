"""AutoscalerError
├── ScalingInvalid   a deployment's `scaling` block cannot be followed
├── MemoryInvalid    what a decider had learned cannot be read back
├── TraceInvalid     a file of requests to simulate cannot be used
└── SimulationLost   a process that simulated has not come to its end
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
    """A stored memory is not one that this version wrote. Start without it: it is only learnt."""

    code = "memory_invalid"


class TraceInvalid(AutoscalerError):
    """A trace has a row or a header that cannot be used; the message names file and line."""

    code = "trace_invalid"


class SimulationLost(AutoscalerError):
    """A process that simulated was killed, and what it had found is lost."""

    code = "simulation_lost"
