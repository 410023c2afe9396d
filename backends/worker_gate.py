"""The gate inside a worker, worked by the server's messages."""

from __future__ import annotations

from backends.errors import NothingToStep
from backends.gate import Gate
from backends.worker_messages import SetGate, StepOnce


def work_gate(gate: Gate, message: SetGate | StepOnce) -> None:
    """Do to ``gate`` what the server says."""
    match message:
        case SetGate(paused=paused, step_delay=step_delay):
            gate.set_delay(step_delay)
            if paused != gate.paused:
                (gate.pause if paused else gate.resume)()
        case StepOnce():
            try:
                gate.step()
            except NothingToStep:  # the last request ended while the press was on its way
                return
