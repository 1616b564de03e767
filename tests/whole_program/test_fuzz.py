"""The fuzzers of tests/fuzz: ten minutes together, over both codecs and the state machines of the rendezvous."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = os.environ.get("DDPRUN_FUZZ_SECONDS", "150")  # for each of the four


@pytest.mark.long
def test_nothing_that_a_peer_or_a_worker_sends_breaks_an_agent():
    if not shutil.which("clang++"):
        pytest.skip("needs clang++ for libFuzzer")
    done = subprocess.run([ROOT / "tests" / "fuzz" / "run.sh", SECONDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("stat::number_of_executed_units") == 4, done.stdout
