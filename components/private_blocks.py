"""Gradio's page, whose errors go to our log: those that Gradio prints repeat what a visitor wrote."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import gradio as gr

from backends.logs import say

logger = logging.getLogger(f"backends.{__name__}")
"""Below ``backends``, whose level is the operator's."""
MOST_FRAMES = 6


class PrivateBlocks(gr.Blocks):
    async def process_api(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """One event of the page, or the next part of its answer. Raises ``gr.Error``, which its visitor sees,
        and which is not printed."""
        try:
            return await super().process_api(*args, **kwargs)
        except gr.Error as error:  # its message is for the visitor, and can have their words
            error.print_exception = False
            say_failed(error)
            raise
        except Exception as error:
            say_failed(error)
            message = f"The server failed at this ({type(error).__name__}); its log says where."
            raise gr.Error(message, print_exception=False) from error


def say_failed(error: Exception) -> None:
    """Type and place, without the message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(
        f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[: -MOST_FRAMES - 1 : -1]
    )
    say(logger, logging.ERROR, "page_failed", error=type(error).__name__, where=where)
