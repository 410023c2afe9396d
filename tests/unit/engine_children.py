"""Main functions that ``test_engine_process`` runs in a child; importable by name, and light."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection

import msgspec

from backends.engine_child import ChildChannel


class Say(msgspec.Struct, tag="say"):
    word: str


class Config(msgspec.Struct):
    greeting: str = "hello"


def echo(channel: ChildChannel, config: Config) -> None:
    """Answers every word with the greeting before it; ``pid`` with its process id."""
    channel.progress(0.5, "half way")
    channel.ready(Say(config.greeting))
    while True:
        said = msgspec.msgpack.decode(channel.receive(), type=Say)
        if said.word == "exit":
            os._exit(7)
        if said.word == "raise":
            raise ValueError("the weights are upside down")
        channel.send(Say(f"{config.greeting} {said.word}"))


def refuse(channel: ChildChannel, config: Config) -> None:
    channel.fail("MambaForCausalLM keeps a state and no keys and values.")


def never_ready(channel: ChildChannel, config: Config) -> None:
    time.sleep(3600)


def tell_module(connection: Connection, name: str) -> None:
    """Whether this process began with a module, and who its parent is."""
    connection.send((name in sys.modules, os.getppid()))
