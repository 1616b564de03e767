"""Tests of a data file that changes while a job runs. The tests show that the message names the file, that the trained state is
saved, and that the exit code is 2."""

import os
import pathlib

import jobs
import pytest
from test_replacements import Job, data, failures  # noqa: F401  (data is a fixture)


def truncate(file: pathlib.Path) -> None:
    os.truncate(file, 4096)


def overwrite(file: pathlib.Path) -> None:
    with file.open("r+b") as out:
        out.seek(16)
        out.write(bytes(range(256)) * ((file.stat().st_size - 16) // 256))


# If the run has evaluations, an evaluation usually reads the changed file first, so the evaluation code must save the state.
# If the run has no evaluations, the training code reads the file first.
@pytest.mark.parametrize(("recovery", "eval_every_epochs"), [("live", 1), ("checkpoint", 0)], ids=["with evaluations", "without evaluations"])
@pytest.mark.parametrize(("deed", "text"), [(truncate, "was truncated from"), (overwrite, "was overwritten")])
def test_a_changed_data_file_is_named_and_steps_are_saved(ddprun_bin, data, tmp_path, deed, text, recovery, eval_every_epochs):  # noqa: F811
    job = Job(ddprun_bin, tmp_path, data, 3, 100000, "--recovery", recovery, eval_every_epochs=eval_every_epochs)
    job.trains()
    step = max(e["step"] for e in job.events if e["event"] == "progress")
    file = data / "train-images-idx3-ubyte"
    deed(file)
    assert job.finish() == 2, job.events[-3:]
    assert failures(job) == [("usage", "give_up")]
    message = next(e["first_cause"]["message"] for e in job.events if e["event"] == "round_failed")
    assert str(file) in message and text in message, message
    assert jobs.newest_step(job.run_dir) >= step - 1
