"""An engine in a process of its own, so that no two share threads, memory or imports."""

from __future__ import annotations

import multiprocessing
import traceback
from multiprocessing.connection import Connection

from backends.models import PreparedModel
from benchmarks.engine import Answered
from benchmarks.engines import ENGINES
from benchmarks.workload import Workload

CONTEXT = "spawn"
"""How children are started: with nothing of this process in them."""


class WrongAnswer(Exception):
    """An engine returned fewer or more tokens than it was asked for."""


class ChildFailed(Exception):
    """An engine could not start, or broke."""


class Child:
    """Started when it is made; idle between two workloads."""

    def __init__(self, name: str, model: PreparedModel, threads: int, device: str = "cpu") -> None:
        self.name = name
        context = multiprocessing.get_context(CONTEXT)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, name, model, threads, device))
        self._process.start()
        theirs.close()
        self._receive()

    def run(self, workload: Workload, seed: int) -> float:
        """Tokens a second. Raises ``WrongAnswer`` where not exactly the tokens asked for came back."""
        self._pipe.send((workload.prompts(seed), workload.output_tokens))
        answered: Answered = self._receive()
        if answered.num_tokens != [workload.output_tokens] * workload.concurrent:
            raise WrongAnswer(
                f"{self.name}: {answered.num_tokens} new tokens instead of {workload.output_tokens} each"
            )
        return workload.num_tokens / answered.seconds

    def stop(self) -> None:
        """End the process and wait for it."""
        if self._process.is_alive():
            self._pipe.send(None)
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self) -> Answered:
        try:
            said = self._pipe.recv()
        except EOFError:
            raise ChildFailed(f"{self.name} ended with code {self._process.exitcode}") from None
        if isinstance(said, str):
            raise ChildFailed(f"{self.name}:\n{said}")
        return said


def _serve(pipe: Connection, name: str, model: PreparedModel, threads: int, device: str) -> None:
    engine = ENGINES[name]()
    try:
        engine.start(model, threads, device)
        pipe.send(Answered(0.0, []))
        while (work := pipe.recv()) is not None:
            pipe.send(engine.timed(*work))
        engine.stop()
    except Exception:
        pipe.send(traceback.format_exc())
        raise
