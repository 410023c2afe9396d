from __future__ import annotations

import msgspec
import pytest

from backends.base import BackendInfo, SamplingParams
from backends.errors import InvalidRequest
from components.sampling import OPTIONAL, sampling_params, sampling_updates

PLAIN = BackendInfo(name="naive", title="naive")
ALL = msgspec.structs.replace(PLAIN, supported=frozenset(OPTIONAL))


def test_settings_reach_the_engine() -> None:
    assert sampling_params(ALL, 0.5, 20, 0.9, 40, "7") == SamplingParams(
        temperature=0.5, max_tokens=20, top_p=0.9, top_k=40, seed=7
    )


def test_a_setting_that_the_engine_does_not_honour_is_not_sent() -> None:
    assert sampling_params(PLAIN, 0.5, 20, 0.9, 40, "7") == SamplingParams(temperature=0.5, max_tokens=20)


def test_no_seed_is_random() -> None:
    assert sampling_params(ALL, 0.5, 20, 1, 0, "").seed is None


@pytest.mark.parametrize("seed", ["-1", "1.5", "seven", "9" * 30])
def test_a_seed_that_is_none_is_refused_with_its_value(seed: str) -> None:
    with pytest.raises(InvalidRequest, match=seed):
        sampling_params(ALL, 0.5, 20, 1, 0, seed)


def test_a_setting_that_the_engine_does_not_honour_is_disabled_and_says_why() -> None:
    for update in sampling_updates(PLAIN, "en"):
        assert update["interactive"] is False
        assert update["info"] == "naive does not support this."
    for update in sampling_updates(ALL, "en"):
        assert update["interactive"] is True
        assert "support" not in update["info"]
