"""Gradio's page, with three things of Gradio's put right.

Errors go to our log: those that Gradio prints repeat what a visitor wrote.

A session does not grow: for whatever an event updates Gradio makes a component anew, with an id of its own,
and keeps it under that id at the next event, beside all earlier ones (``Blocks.preprocess_data``,
``postprocess_data``: ``block = state[block._id]``, then ``state[block._id] = block``). It was 12 KiB for each
answer.

No statistics are kept for Gradio's own monitoring page, which this one does not have: after each answer
Gradio makes a table of the last 10,000 (``Queue.compute_analytics_summary``), which takes 10 ms and leaves
memory behind as it grows.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, Self

import gradio as gr
from gradio.state_holder import SessionState

from backends.logs import say

logger = logging.getLogger(f"backends.{__name__}")
"""Below ``backends``, whose level is the operator's."""
MOST_FRAMES = 6


class PageBlocks(gr.Blocks):
    def queue(self, *args: Any, **kwargs: Any) -> Self:
        """Called by ``Blocks.__init__`` as well."""
        super().queue(*args, **kwargs)
        self._queue.ANALYTICS_MAX_EVENTS = 1
        self._queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize  # spelt so
        return self

    async def process_api(
        self, *args: Any, state: SessionState | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """One event of the page, or the next part of its answer. Raises ``gr.Error``, which its visitor sees,
        and which is not printed."""
        try:
            return await super().process_api(*args, state=state, **kwargs)
        except gr.Error as error:  # its message is for the visitor, and can have their words
            error.print_exception = False
            _say_failed(error)
            raise
        except Exception as error:
            _say_failed(error)
            message = f"The server failed at this ({type(error).__name__}); its log says where."
            raise gr.Error(message, print_exception=False) from error
        finally:
            if state is not None:
                _keep_ids(state)


def _keep_ids(state: SessionState) -> None:
    """A component that stands for another is known by that one's id."""
    for key, block in state.blocks_config.blocks.items():
        if block._id != key:
            block._id = key


def _say_failed(error: Exception) -> None:
    """Type and place, without the message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(
        f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[: -MOST_FRAMES - 1 : -1]
    )
    say(logger, logging.ERROR, "page_failed", error=type(error).__name__, where=where)
