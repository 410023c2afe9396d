"""``/health`` is always 200 and tells each engine's state; ``/metrics`` counts what happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from backends.api.feed import Feed
from backends.api.prometheus import PrometheusMetrics
from backends.archive import Archive
from backends.recorder import Recorder
from backends.records import AnyRecord, EngineConfig, Exposure, FinishReason, KVDelta, RequestFinished, State
from tests import factories as make
from tests.api.serving import recorded, serving, text_until
from tests.fakes import FakeBackend


async def health(client: httpx.AsyncClient) -> dict[str, dict[str, object]]:
    response = await client.get("/health")
    assert response.status_code == 200
    backends = response.json()["backends"]
    assert isinstance(backends, dict)
    return backends


async def test_an_engine_is_idle_then_starting_with_progress_then_ready_with_versions() -> None:
    async with serving() as server, server.client() as client:
        server.naive.may_start.clear()
        idle = (await health(client))["naive"]
        starting = asyncio.create_task(server.naive.start())
        await asyncio.sleep(0)
        coming = (await health(client))["naive"]
        server.naive.may_start.set()
        await starting
        ready = (await health(client))["naive"]

    assert (idle["state"], idle["model"], idle["versions"]) == ("idle", None, None)
    assert (coming["state"], coming["progress"]) == ("starting", 0.5)
    assert coming["reason"] == "Loading the weights"
    assert (ready["state"], ready["versions"]) == ("ready", {"fake": "1"})


async def test_an_engine_that_cannot_run_says_why_and_the_server_is_well() -> None:
    broken = FakeBackend("generate", unavailable="torch is not installed.")
    async with serving(FakeBackend(), broken) as server, server.client() as client:
        await client.post("/generate?backend=generate", json={"prompt": "a"})
        backends = await health(client)

    assert (backends["generate"]["state"], backends["generate"]["reason"]) == (
        "unavailable",
        "torch is not installed.",
    )
    assert backends["naive"]["state"] == "idle"


async def test_a_health_answer_names_what_is_wrong_and_metrics_count_it(tmp_path: Path) -> None:
    broken = FakeBackend("generate", unavailable="torch is not installed.")
    naive = FakeBackend()
    archive = Archive(tmp_path / "gone", [naive.recorder, broken.recorder])
    archive.start()
    async with serving(naive, broken, archive=archive) as server, server.client() as client:
        before = (await client.get("/health")).json()
        await client.post("/generate?backend=generate", json={"prompt": "a"})
        await server.naive.start()
        async with asyncio.timeout(20):
            while archive.problem("naive") is None:
                await asyncio.sleep(0.01)  # it writes in a thread of its own, which tells nobody
        after = (await client.get("/health")).json()
        values = samples((await client.get("/metrics")).content)
    await archive.close()

    assert (before["status"], before["problems"]) == ("ok", [])
    assert after["status"] == "degraded"
    assert after["problems"] == [
        {"backend": "naive", "code": "recording_failed", "message": "No such file or directory"},
        {"backend": "generate", "code": "engine_unavailable", "message": "torch is not installed."},
    ]
    assert after["backends"]["naive"]["record_problem"] == "No such file or directory"
    assert (values["servescope_problems", "naive"], values["servescope_problems", "generate"]) == (1, 1)


async def test_the_versions_of_the_server_and_the_default_are_told() -> None:
    async with serving(FakeBackend("generate"), FakeBackend("naive")) as server, server.client() as client:
        body = (await client.get("/health")).json()

    assert body["status"] == "ok"
    assert body["default"] == "generate"
    assert set(body["versions"]) == {"python", "fastapi", "uvicorn", "gradio"}


async def test_metrics_count_what_a_request_cost() -> None:
    async with serving() as server, server.client() as client, server.feed("?backend=naive") as feed:
        await client.post("/generate", json={"prompt": "one two three", "max_tokens": 4})
        await text_until(feed, '"finished"')
        response = await client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain")
    values = samples(response.content)
    assert values["servescope_requests_finished_total", "naive", "length"] == 1
    assert values["servescope_requests_arrived_total", "naive", "api"] == 1
    assert values["servescope_prompt_tokens_total", "naive"] == 3
    assert values["servescope_output_tokens_total", "naive"] == 4
    assert values["servescope_steps_total", "naive"] == 4
    assert values["servescope_tokens_computed_total", "naive"] == 3 + 4 + 5 + 6
    assert values["servescope_attention_pairs_total", "naive"] == 9 + 16 + 25 + 36
    assert values["servescope_ttft_seconds_count", "naive"] == 1
    assert values["servescope_itl_seconds_count", "naive"] == 3
    assert values["servescope_e2e_seconds_count", "naive"] == 1
    assert values["servescope_queue_time_seconds_count", "naive"] == 1
    assert values["servescope_viewers", "naive"] == 1
    assert values["servescope_engine_up", "naive"] == 1
    assert values["servescope_requests", "naive", "running"] == 0


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Name and label values, the backend first or empty → value; without histogram buckets."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if "le" not in labels:
                found[sample.name, labels.pop("backend", ""), *labels.values()] = sample.value
    return found


def metrics_of(*records: AnyRecord) -> dict[tuple[str, ...], float]:
    """What Prometheus reads after these records."""
    recorder = Recorder("paged")
    recorder.extend(records)
    metrics = PrometheusMetrics()
    for record in records:
        metrics.observe("paged", record)
    return samples(metrics.render({"paged": Feed(recorder)}))


def test_latencies_are_those_of_the_records() -> None:
    values = metrics_of(
        make.arrived("a", time=10.0),
        make.step(0, [make.row("a", 4)], start_time=11.0),
        make.token("a", 0, 12.0),
        make.token("a", 1, 12.5),
        make.token("a", 2, 14.0),
        make.finished("a"),
    )

    assert values["servescope_queue_time_seconds_sum", "paged"] == 1.0
    assert values["servescope_ttft_seconds_sum", "paged"] == 2.0
    assert values["servescope_itl_seconds_sum", "paged"] == 2.0
    assert values["servescope_e2e_seconds_sum", "paged"] == 4.0


def test_of_each_request_there_are_tokens_phases_and_preemptions_and_of_each_step_its_batch() -> None:
    kv = KVDelta(num_free=3)
    values = metrics_of(
        make.header("paged", engine=EngineConfig(num_blocks=12, block_size=4)),
        make.arrived("a", time=10.0, num_prompt_tokens=4),
        make.step(0, [make.row("a", 2, computed=2, num_cached_tokens=2)], start_time=11.0, kv=kv),
        make.token("a", 0, 12.0),
        make.step(1, [], preempted_ids=["a"], waiting_ids=["a"]),
        make.token("a", 1, 12.5),
        make.token("a", 2, 14.0),
        make.finished("a"),
    )

    assert values["servescope_prefill_seconds_sum", "paged"] == 1.0
    assert values["servescope_decode_seconds_sum", "paged"] == 2.0
    assert values["servescope_tpot_seconds_sum", "paged"] == 1.0
    assert values["servescope_request_prompt_tokens_sum", "paged"] == 4
    assert values["servescope_request_output_tokens_sum", "paged"] == 3
    assert values["servescope_request_preemptions_sum", "paged"] == 1
    assert values["servescope_prompt_tokens_cached_total", "paged"] == 2
    assert values["servescope_step_tokens_sum", "paged"] == 2
    assert values["servescope_step_requests_count", "paged"] == 2
    assert values["servescope_step_waiting_sum", "paged"] == 1
    assert values["servescope_kv_usage", "paged"] == 0.75


def test_a_crash_is_counted() -> None:
    states = [make.state(state) for state in (State.READY, State.CRASHED, State.RESTARTING)]
    assert metrics_of(*states)["servescope_engine_crashes_total", "paged"] == 1


def test_an_aborted_request_has_a_reason_and_no_e2e() -> None:
    values = metrics_of(
        make.arrived("a"), make.token("a", 0, 1.0), make.finished("a", 2.0, FinishReason.ABORT)
    )

    assert values["servescope_requests_finished_total", "paged", "abort"] == 1
    assert ("servescope_e2e_seconds_count", "paged") not in values


def test_preemptions_padding_and_recomputation_are_counted() -> None:
    values = metrics_of(
        make.arrived("a"),
        make.step(0, [make.row("a", 10)], num_padding_tokens=6),
        make.step(1, [], preempted_ids=["a"]),
        make.step(2, [make.row("a", 11)]),
    )

    assert values["servescope_preemptions_total", "paged"] == 1
    assert values["servescope_padding_tokens_total", "paged"] == 6
    assert values["servescope_tokens_recomputed_total", "paged"] == 10


def test_queue_depths_are_the_latest_and_streams_are_added_up() -> None:
    values = metrics_of(
        make.queues(queues={"incoming_queue": 5}, streams={"a": 1, "b": 2}),
        make.queues(queues={"incoming_queue": 3}, streams={"a": 4, "b": 2}),
    )

    assert values["servescope_queue_depth", "paged", "incoming_queue"] == 3
    assert values["servescope_queue_depth", "paged", "streams"] == 6


def test_misdelivered_results_go_on_counting_over_a_restart() -> None:
    samples_of_one_life = [make.queues(num_misdelivered=count) for count in (1, 3, 3)]
    after_restart = [make.queues(num_misdelivered=count) for count in (0, 2)]
    values = metrics_of(*samples_of_one_life, *after_restart)

    assert values["servescope_misdelivered_results_total", "paged"] == 3 + 2


def test_kv_gauges_are_of_the_requests_in_flight() -> None:
    kv = KVDelta(num_free=7, reserved_slots={"a": 64, "b": 64}, filled_slots={"a": 10, "b": 20})
    values = metrics_of(
        make.arrived("a"),
        make.arrived("b"),
        make.step(0, [make.row("a"), make.row("b")], kv=kv),
        make.finished("b"),
    )

    assert values["servescope_kv_free_blocks", "paged"] == 7
    assert values["servescope_kv_reserved_slots", "paged"] == 64
    assert values["servescope_kv_filled_slots", "paged"] == 10
    assert values["servescope_requests", "paged", "running"] == 1


def test_what_servers_tell_of_themselves_is_passed_on_with_their_number() -> None:
    values = metrics_of(
        make.header("paged", measured={"batch": Exposure.NOT_EXPOSED}),
        make.arrived("a", num_prompt_tokens=None),
        make.gauges(server=0, num_running=3, num_waiting=1, kv_cache_usage=0.25, num_preemptions=9),
        make.gauges(server=0, num_running=2, num_preemptions=4),
        make.gauges(server=1, prefix_cache_queries=100, prefix_cache_hits=60),
    )

    assert values["servescope_server_requests", "paged", "0", "running"] == 2
    assert ("servescope_server_requests", "paged", "0", "waiting") not in values
    assert ("servescope_server_kv_usage", "paged", "0") not in values
    assert values["servescope_server_preemptions_total", "paged", "0"] == 4, "it started again"
    assert values["servescope_server_prefix_cache_queries_total", "paged", "1"] == 100
    assert values["servescope_server_prefix_cache_hits_total", "paged", "1"] == 60
    assert values["servescope_requests", "paged", "unknown"] == 1
    assert ("servescope_requests", "paged", "waiting") not in values


def test_a_server_that_is_alone_has_no_number() -> None:
    values = metrics_of(make.gauges(num_running=3))

    assert values["servescope_server_requests", "paged", "", "running"] == 3


def test_tokens_that_only_the_end_tells_of_are_counted() -> None:
    values = metrics_of(
        make.arrived("a", num_prompt_tokens=None),
        make.token("a", 0, 1.0),
        make.token("a", 1, 1.0),
        make.finished("a", 2.0, num_prompt_tokens=5, num_output_tokens=8),
    )

    assert values["servescope_prompt_tokens_total", "paged"] == 5
    assert values["servescope_output_tokens_total", "paged"] == 8
    assert values["servescope_itl_zero_gaps_total", "paged"] == 1


def test_what_an_engine_does_not_expose_has_no_metric() -> None:
    values = metrics_of(make.arrived("a"), make.step(0, [make.row("a")], attention_pairs=None))

    assert ("servescope_kv_free_blocks", "paged") not in values
    assert ("servescope_kv_filled_slots", "paged") not in values
    assert ("servescope_attention_pairs_total", "paged") not in values


def test_an_engine_is_up_when_ready_or_paused() -> None:
    assert metrics_of(make.state(State.PAUSED))["servescope_engine_up", "paged"] == 1
    assert metrics_of(make.state(State.CRASHED))["servescope_engine_up", "paged"] == 0


async def test_an_error_is_counted_with_its_reason() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        async with server.feed() as feed:
            asking = asyncio.create_task(client.post("/generate", json={"prompt": "a"}))
            await text_until(feed, '"arrived"')
            server.naive.die()
            await asking
            await recorded(server.naive.recorder, RequestFinished)
            await text_until(feed, '"finished"')
            values = samples((await client.get("/metrics")).content)

    assert values["servescope_requests_finished_total", "naive", "error"] == 1
