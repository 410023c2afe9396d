"""The worker's end of the tap: a socket that the scheduler in EngineCore's process connects to."""

from __future__ import annotations

import msgspec
import zmq
import zmq.asyncio

from backends.vllm_async.messages import FromTap, ToTap


class TapLink:
    """Nothing is lost on it, from the tap's first word on. ``PUB`` would lose that one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.num_told = 0
        """Messages that have been sent to the tap."""
        self._tap: bytes | None = None
        """The tap's name on the socket, once it has spoken."""
        self._decode = msgspec.msgpack.Decoder(FromTap).decode
        self._socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # an idle tap does not listen: what it is told may pile up
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)

    async def receive(self) -> FromTap:
        self._tap, message = await self._socket.recv_multipart()
        return self._decode(message)

    async def send(self, message: ToTap) -> None:
        assert self._tap is not None, "the tap speaks first"
        self.num_told += 1
        await self._socket.send_multipart([self._tap, msgspec.msgpack.encode(message)])
