"""Tests that stop jobs with start scripts. They test a few combinations of a script and a way to stop it. start_scripts.py
runs any number of random combinations."""

import random

import pytest
import start_scripts

STOPS = [(kind, how) for kind in start_scripts.KINDS for how in ("TERM to the agent", "TERM to every process")]
STOPS += [("plain", "peer"), ("trap exits with 0", "peer"), ("plain", "USR1"), ("in a new session", "INT"), ("background", "TERM to the group")]


@pytest.mark.parametrize("kind,how", STOPS)
def test_the_trainer_behind_a_start_script_saves(ddprun_bin, kind, how):
    random.seed(f"{kind} {how}")
    assert start_scripts.one_stop(str(ddprun_bin), kind, how, seconds=0.8) == ""
