"""Tests of optimizer.lr_batch_rule, which scales the learning rate with batch_size. The tests show that the learning rate does
not depend on the number of workers, even if the number changes during a run."""

import jobs
import pytest


@pytest.mark.parametrize("rule,factor", [("none", 1), ("linear", 4), ("square_root", 2)])
def test_metrics_show_the_scaled_learning_rates(ddprun_bin, ddptrain_bin, tmp_path, rule, factor):
    data = jobs.write_small_dataset(tmp_path / "data")
    base = {} if rule == "none" else {"lr_base_batch": 8}
    given = jobs.config(data, batch_size=32, epochs=1, max_steps=6, eval_every_epochs=0, schedule={"type": "linear", "warmup_steps": 2},
                        optimizer={"type": "sgd", "lr": 0.01, "lr_batch_rule": rule, **base})
    expected = [0.01 * factor * share for share in (0.5, 1, 1, 2 / 3, 1 / 3, 0)]
    train = jobs.write_config(tmp_path / "train.json", given)
    for name, starts in (("alone", [(1, 6)]), ("two", [(2, 6)]), ("fewer", [(2, 3), (1, 6)])):
        for workers, steps in starts:
            # An injected fault ends the first of the two invocations. The test cannot use max_steps for this, because the
            # learning rate schedule depends on max_steps.
            fault = {"DDPTRAIN_FAULT": f"exit=7 rank=0 step={steps}"} if steps < 6 else {}
            done = jobs.run([ddprun_bin, "--max-restarts", 0, "--nproc-per-node", workers, "--run-dir", tmp_path / name, train, "checkpoint.every_steps=1"], **fault)
            assert (done.returncode == 0) == (steps == 6), done.stderr
            message = f"the learning rate is {0.01 * factor:.6g}: optimizer.lr 0.01 times {factor}, because batch_size is 32 and optimizer.lr_base_batch is 8 (optimizer.lr_batch_rule {rule}); it does not depend on the number of workers (now {workers} worker"
            assert (message in done.stderr) == (rule != "none"), done.stderr
        rates = [line["lr"] for line in jobs.metrics(tmp_path / name, "step")]
        assert rates == pytest.approx(expected, rel=1e-9, abs=1e-12), name


def test_a_rule_without_a_base_is_refused(ddprun_bin, ddptrain_bin, tmp_path):
    """The option lr_base_batch is accepted even if there is no rule, because a user may switch off the rule of a config on the
    command line."""
    data = jobs.write_small_dataset(tmp_path / "data")
    for changes, words in (({"lr_batch_rule": "linear"}, 'lr_batch_rule "linear" requires lr_base_batch, found 0: set it to the batch_size for which lr was chosen'),
                           ({"lr_base_batch": 8}, "")):
        train = jobs.write_config(tmp_path / "train.json", jobs.config(data, optimizer={"type": "sgd", "lr": 0.01, **changes}))
        done = jobs.run([ddprun_bin, "validate", train])
        assert done.returncode == (2 if words else 0) and words in done.stdout + done.stderr, done.stdout + done.stderr
