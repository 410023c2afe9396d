"""The recorder is bounded, thread-safe, and serialises each record once."""

from __future__ import annotations

import asyncio
import threading
from unittest.mock import patch

import pytest

from backends import recorder as recorder_module
from backends.recorder import Recorder, RecordsDropped
from backends.records import AnyRecord, State, decode_record, encode_record
from backends.snapshot import SnapshotBuilder
from tests import factories as make


def some_history(num_requests: int = 5) -> list[AnyRecord]:
    records: list[AnyRecord] = [make.header(), make.state()]
    for number in range(num_requests):
        name = f"r{number}"
        records += [make.arrived(name, time=number), make.step(number, [make.row(name)], start_time=number)]
        records += [make.token(name, time=number + 0.5)]
        if number % 2:
            records.append(make.finished(name, time=number + 0.6))
    return records


def test_records_come_back_in_order_with_their_bytes() -> None:
    recorder = Recorder("naive")
    records = some_history()
    recorder.extend(records)

    entries = recorder.since(0)

    assert [entry.record for entry in entries] == records
    assert [decode_record(entry.line) for entry in entries] == records
    assert recorder.version == len(records)


def test_since_gives_only_what_came_after() -> None:
    recorder = Recorder("naive")
    recorder.extend(some_history())

    assert recorder.since(recorder.version) == []
    assert [e.record for e in recorder.since(3, limit=2)] == some_history()[3:5]


def test_each_record_is_serialised_once_however_often_it_is_read() -> None:
    recorder = Recorder("naive", capacity=4)
    with patch.object(recorder_module, "encode_record", wraps=encode_record) as encode:
        recorder.extend(some_history())
        for _ in range(30):
            recorder.since(recorder.oldest_version)

    assert encode.call_count == len(some_history())


@pytest.mark.parametrize("capacity", [1, 3, 7, 100])
def test_the_base_and_the_retained_log_are_the_whole_truth(capacity: int) -> None:
    recorder = Recorder("naive", capacity=capacity)
    recorder.extend(some_history())

    builder = SnapshotBuilder.from_snapshot(recorder.base().snapshot)
    for entry in recorder.since(recorder.oldest_version):
        builder.apply(entry.record)

    head = recorder.head().snapshot
    assert builder.snapshot(head.version, head.time) == head
    assert head.version == recorder.version
    assert len(recorder.since(recorder.oldest_version)) <= capacity


def test_the_log_is_bounded_in_bytes_too() -> None:
    one = len(encode_record(make.token()))
    recorder = Recorder("naive", max_bytes=10 * one)
    recorder.extend([make.token()] * 50)

    assert len(recorder.since(recorder.oldest_version)) == 10
    assert recorder.version == 50


def test_a_record_larger_than_the_whole_log_is_kept_until_the_next() -> None:
    recorder = Recorder("naive", max_bytes=10)
    recorder.extend([make.token(index=0), make.token(index=1)])

    assert [e.record for e in recorder.since(recorder.oldest_version)] == [make.token(index=1)]


def test_dropped_records_and_records_to_come_cannot_be_asked_for() -> None:
    recorder = Recorder("naive", capacity=3)
    recorder.extend(some_history())

    with pytest.raises(RecordsDropped):
        recorder.since(recorder.oldest_version - 1)
    with pytest.raises(RecordsDropped):
        recorder.since(recorder.version + 1)


def test_header_and_state_survive_the_records_that_carried_them() -> None:
    recorder = Recorder("naive", capacity=2)
    recorder.extend(some_history())
    recorder.append(make.state(State.PAUSED))
    recorder.extend([make.token()] * 5)

    assert recorder.header == make.header()
    assert recorder.state == make.state(State.PAUSED)


def test_header_and_state_are_unknown_before_the_engine_said_so() -> None:
    recorder = Recorder("naive")

    assert recorder.header is None
    assert recorder.state is None


def test_threads_that_append_at_once_lose_nothing_and_mix_no_batch() -> None:
    recorder = Recorder("naive")
    batch = 7

    def write(thread: int) -> None:
        for _ in range(50):
            recorder.extend([make.token(f"t{thread}", index) for index in range(batch)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    records = [entry.record for entry in recorder.since(0)]
    batches = [records[start : start + batch] for start in range(0, len(records), batch)]
    assert len(records) == 4 * 50 * batch
    assert all(b == [make.token(b[0].request_id, index) for index in range(batch)] for b in batches)


async def test_a_waiter_wakes_when_another_thread_appends() -> None:
    recorder = Recorder("naive")
    waiting = asyncio.create_task(recorder.wait_for(2))
    await asyncio.sleep(0)

    await asyncio.to_thread(recorder.append, make.header())
    assert not waiting.done()
    await asyncio.to_thread(recorder.append, make.state())

    await waiting


async def test_waiting_for_what_is_there_returns_at_once() -> None:
    recorder = Recorder("naive")
    recorder.append(make.header())

    await recorder.wait_for(1)


async def test_a_fast_engine_schedules_one_wake_up_not_one_a_record() -> None:
    recorder = Recorder("naive")
    waiting = asyncio.create_task(recorder.wait_for(1))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    with patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as call:
        for index in range(1000):
            recorder.append(make.token(index=index))

    await waiting
    assert call.call_count == 1


async def test_a_cancelled_waiter_is_forgotten() -> None:
    recorder = Recorder("naive")
    waiting = asyncio.create_task(recorder.wait_for(1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    loop = asyncio.get_running_loop()
    with patch.object(loop, "call_soon_threadsafe") as call:
        recorder.append(make.header())
    call.assert_not_called()


def test_a_waiter_whose_loop_is_closed_does_not_hurt_the_engine() -> None:
    recorder = Recorder("naive")
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(recorder.wait_for(1))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()

    recorder.append(make.header())

    assert recorder.version == 1
    waiting._log_destroy_pending = False  # the loop died under it on purpose


async def test_a_follower_gets_every_record_in_order() -> None:
    recorder = Recorder("naive")
    records = some_history()
    recorder.extend(records[:4])
    got: list[AnyRecord] = []
    async for entries in recorder.follow(0):
        got += [entry.record for entry in entries]
        if len(got) == len(records):
            break
        recorder.append(records[len(got)])

    assert got == records


async def test_a_follower_that_fell_out_of_the_log_is_told() -> None:
    recorder = Recorder("naive", capacity=2)
    recorder.extend(some_history())

    with pytest.raises(RecordsDropped):
        await anext(recorder.follow(0))
