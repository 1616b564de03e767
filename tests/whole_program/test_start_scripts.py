"""Stops of start scripts of all kinds, a few of them; start_scripts.py runs any number."""

import random

import pytest
import start_scripts

STOPS = [(kind, how) for kind in start_scripts.KINDS for how in ("TERM to the agent", "TERM to every process")]
STOPS += [("plain", "peer"), ("trap exits with 0", "peer"), ("plain", "USR1"), ("in a session of its own", "INT"), ("background", "TERM to the group")]


@pytest.mark.parametrize("kind,how", STOPS)
def test_the_trainer_behind_a_start_script_saves_whole(ddprun_bin, kind, how):
    random.seed(f"{kind} {how}")
    assert start_scripts.one_stop(str(ddprun_bin), kind, how, seconds=0.8) == ""
