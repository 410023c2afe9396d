"""Where experiments are run."""

from __future__ import annotations

import pytest

from tests.unit.lessons.experiment_harness import Laboratory


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("laboratory"))
