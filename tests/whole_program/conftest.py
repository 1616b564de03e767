"""What holds for every whole-program test."""

import jobs
import pytest


@pytest.fixture(autouse=True)
def nothing_goes_on():
    """No job outlives its test, not even one that failed half-way."""
    yield
    jobs.end_started()
