"""The sweeps here run thousands of tiny passes, most of whose time would go into checking shapes that the reference tests
already check; so the checks rest while a law is tried."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def _shapes_are_checked_elsewhere() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
