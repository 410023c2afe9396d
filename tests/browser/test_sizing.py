"""The Sizing tab: the article's numbers on the screen, and a running engine beside them."""

from __future__ import annotations

import msgspec
from playwright.async_api import Browser, Locator, Page, expect

from backends.records import EngineConfig, ModelShape, TraceHeader
from tests.browser.conftest import OpenPage
from tests.browser.site import SETTINGS, ChatPage, Complaints, serving
from tests.fakes import FakeBackend

SHAPE = ModelShape(
    num_layers=30,
    hidden_size=576,
    num_attention_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    num_parameters=134_515_008,
)


class BlocksBackend(FakeBackend):
    """Tells of a pool: 16 requests of 1,024 tokens in blocks of 16."""

    def _header(self) -> TraceHeader:
        return msgspec.structs.replace(
            super()._header(),
            model="SmolLM2-135M-Instruct",
            dtype="float32",
            engine=EngineConfig(max_model_len=1024, block_size=16, num_blocks=1024, max_num_seqs=16),
            shape=SHAPE,
        )


async def settled(page: Page) -> None:
    await expect(page.locator("#sizing-root[data-settled=true][data-wrong=false]")).to_be_visible()


async def open_sizing(open_page: OpenPage, query: str = "", **options: object) -> Page:
    opened: ChatPage = await open_page(f"?tab=sizing{query}", **options)
    await settled(opened.page)
    return opened.page


def figure(page: Page, key: str) -> Locator:
    return page.locator(f"tr[data-figure={key}] td").first


async def test_opt_125m_on_6_gb_is_refused_at_0_9_in_vllms_words_and_starts_at_half(
    open_page: OpenPage,
) -> None:
    page = await open_sizing(open_page)
    verdict = page.locator("#sizing-verdict")
    await expect(verdict).to_contain_text("It does not start")
    await expect(verdict).to_contain_text("5.40 GiB shall be reserved, but only 5.20 GiB are free.")
    await expect(verdict.locator("blockquote")).to_contain_text(
        "less than desired GPU memory utilization (0.9"
    )
    await expect(verdict.locator("figcaption")).to_contain_text("vllm/v1/worker/utils.py::request_memory")
    await expect(figure(page, "kv_bytes_per_token")).to_have_text("36,864 B")
    await page.get_by_label("Share reserved").fill("0.5")
    await expect(verdict).to_contain_text("It starts")
    await expect(verdict.locator("blockquote")).to_have_count(0)
    await expect(figure(page, "reserved")).to_have_text("3.00 GiB")


async def test_two_gib_of_cache_hold_58254_tokens(open_page: OpenPage) -> None:
    """Of a card of 8 GiB a half is reserved; weights and the rest take 2 GiB of it."""
    page = await open_sizing(open_page)
    weights = 125_239_296 * 2 / 2**30
    for label, value in {
        "Memory, GiB": "8",
        "Free at the start, GiB": "8",
        "Share reserved": "0.5",
        "Rest (assumed), GiB": f"{2 - weights:.12f}",
    }.items():
        await page.get_by_label(label).fill(value)
    await expect(figure(page, "kv_cache")).to_have_text("2.00 GiB")
    await expect(figure(page, "tokens")).to_have_text("58,254 tokens")


async def test_llama_3_8b_counts_its_grouped_heads_and_starts_on_24_gb(open_page: OpenPage) -> None:
    page = await open_sizing(open_page)
    await page.get_by_role("button", name="Llama-3-8B on 24 GB").click()
    await expect(figure(page, "kv_bytes_per_token")).to_have_text("131,072 B")
    await expect(page.locator("#sizing-verdict")).to_contain_text("It starts")


async def test_a_wrong_value_is_told_at_its_field(open_page: OpenPage, complaints: Complaints) -> None:
    page = await open_sizing(open_page)
    layers = page.locator("#sizing-num_layers")
    await layers.fill("0")
    await expect(page.locator("#sizing-num_layers-problem")).to_contain_text(
        "greater than or equal to 1 (got 0)"
    )
    await expect(layers).to_have_attribute("aria-invalid", "true")
    await layers.fill("12")
    await settled(page)
    await expect(page.locator("#sizing-num_layers-problem")).to_be_hidden()
    complaints.seen = [line for line in complaints.seen if "422" not in line]


async def test_a_config_json_fills_the_sizes(open_page: OpenPage, complaints: Complaints) -> None:
    page = await open_sizing(open_page)
    await page.get_by_text("Read a config.json").click()
    area = page.get_by_label("Paste the model's config.json")
    await area.fill('{"architectures": ["LlamaForCausalLM"], "sliding_window": 4096}')
    await page.get_by_role("button", name="Read", exact=True).click()
    await expect(page.get_by_role("alert").filter(has_text="sliding window of 4096")).to_be_visible()
    await area.fill(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,'
        '"dtype": "bfloat16", "num_attention_heads": 4, "num_key_value_heads": 2,'
        '"intermediate_size": 64, "vocab_size": 100}'
    )
    await page.get_by_role("button", name="Read", exact=True).click()
    await expect(page.locator("#sizing-num_kv_heads")).to_have_value("2")
    await expect(figure(page, "kv_bytes_per_token")).to_have_text("128 B")
    await expect(page.locator("#sizing-model")).to_have_value("own")
    complaints.seen = [line for line in complaints.seen if "400" not in line]


async def test_a_running_engine_stands_beside_what_is_calculated(browser: Browser) -> None:
    engines = {
        "naive": FakeBackend("naive", settings=SETTINGS),
        "paged": BlocksBackend("paged", settings=SETTINGS),
    }
    async with serving(engines) as url:
        complaints = Complaints(url)
        page = await browser.new_page(locale="en-US")
        complaints.listen(page)
        await page.goto(f"{url}?tab=sizing")
        await settled(page)
        await expect(page.get_by_text("No engine with blocks is running")).to_be_visible()
        await engines["paged"].start()
        await page.get_by_role("link", name="Playground").click()
        await page.get_by_role("link", name="Sizing").click()
        await expect(page.get_by_text("The form is about another model")).to_be_visible()
        await page.get_by_role("button", name="Running: paged").click()
        for label, value in {"Memory, GiB": "16", "Free at the start, GiB": "12"}.items():
            await page.get_by_label(label).fill(value)
        await expect(page.locator("[data-row=num_blocks] dd")).to_have_text("1,024")
        await expect(page.locator("[data-row=expected_blocks] dd")).to_have_text("1,024")
        await expect(page.locator("[data-row=agreement] dd")).to_have_text("100%")
        await page.get_by_label("Requests in a step").fill("8")
        await expect(page.locator("[data-row=agreement] dd")).to_have_text("50%")
        await page.close()
        assert complaints.seen == []
