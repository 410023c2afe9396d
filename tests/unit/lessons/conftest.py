"""Where experiments are run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.lessons.experiment_harness import Laboratory


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # tiny models lose more to threads than they gain
        yield Laboratory(tmp_path_factory.mktemp("laboratory"))
