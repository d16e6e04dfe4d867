"""What a forked process is asked to run. The driver, which imports everything, is imported there, by the server of forks once
for all, and not by the tests."""

from __future__ import annotations

from typing import Any


def drive(*arguments: Any) -> None:
    """As tests.faults.driver.drive has it."""
    from tests.faults import driver

    driver.drive(*arguments)
