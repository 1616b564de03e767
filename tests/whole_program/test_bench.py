"""Tests that the benchmark programs work. Some of their rows run once under both launchers. The measured values are not
checked."""

import importlib
import json
import pathlib
import sys

import jobs
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return lambda name: importlib.import_module(name)


@pytest.mark.needs_torch_python
def test_the_launch_benchmark_as_a_program(ddprun_bin, tmp_path):
    done = jobs.run([sys.executable, BENCH / "bench.py", "launch", "--quick", "--bin", ddprun_bin.parent, "--results", tmp_path,
                     "--only", "error message about a missing program"])
    # On a slow machine a row may miss its target, which sets the exit code.
    assert done.stdout.count("bar missed") == done.returncode, done.stdout + done.stderr
    (table,) = json.loads((tmp_path / "newest.json").read_text(encoding="utf-8"))
    assert table["title"] == "Failures, stops and mistakes"
    (row,) = table["rows"]
    assert len(row["ours"]) == 4 and len(row["peer"]) == 1 and row["times_better"] > 1


@pytest.mark.needs_torch_python
def test_observations_cover_both_launchers(ddprun_bin, bench):
    launch, measure = bench("launch_bench"), bench("measure")
    tools = measure.Tools.find(ddprun_bin.parent)
    ((row,),) = [table.rows for table in launch.run(tools, measure.RunOptions(quick=True, repeats=1, only="exit 7"))]
    assert (row.ours, row.peer, row.met) == ("7", "1", True)


@pytest.mark.parametrize("only", ["no-op job, 1 worker", "training speed: mlp, batch 1 ", "next new step: state kept"])
def test_two_builds_are_measured_alternately(ddprun_bin, bench, monkeypatch, only):
    before, measure = bench("before_bench"), bench("measure")
    monkeypatch.setattr(before, "before", ddprun_bin)
    monkeypatch.setattr(bench("recovery_bench"), "KILL_AFTER", 60)
    tools = measure.Tools(str(ddprun_bin), "", [], sys.executable)
    (table,) = before.run(tools, measure.RunOptions(quick=True, repeats=1, only=only))
    (row,) = table.rows
    assert len(row.ours.values) == len(row.peer.values) == 3 and row.met is not None and only in row.name


def test_a_pair_is_compared_with_itself(bench):
    """The two values of a pair are measured directly one after the other, so a slow phase of the machine affects both values.
    The confidence interval is therefore computed from the ratios of the pairs."""
    measure = bench("measure")
    ours, peer = [10.0, 11.0, 5.5, 12.0, 6.6], [9.0, 10.0, 5.0, 11.0, 6.0]

    def row(low: float) -> object:
        return measure.Row("row", "samples/s", measure.Series(ours), measure.Series(peer), larger_is_better=True, paired=True, factor=1.0, low=low)

    low, high = row(0.95).interval
    assert row(0.95).times_better == 1.1 and 1.09 <= low <= 1.1 <= high <= 1.12
    assert row(0.95).met is True and row(1.1).met is False
    assert row(0.95).interval == row(1.1).interval, "the bootstrap must use a fixed seed"
    table = measure.Table("Title", "peer", [row(0.95)])
    assert "| 1.10 (1.09-1.11) | 1x, lower end 0.95x | yes |" in table.as_markdown()
    assert measure.Row("row", "", "4 ms: data 1 %", None).met is None


def test_the_median_interval_is_narrow_for_equal_values(bench):
    measure = bench("measure")
    low, high = measure.interval_of_median([1.0] * 14 + [5.0])
    assert (low, high) == (1.0, 1.0)
    low, high = measure.interval_of_median([float(i) for i in range(15)])
    assert 3 <= low <= 5 and 9 <= high <= 11


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_the_training_benchmark_measures_pairs(ddprun_bin, ddptrain_bin, bench):
    training, measure = bench("training_bench"), bench("measure")
    tools = measure.Tools.find(ddprun_bin.parent)
    speeds, parts = training.run(tools, measure.RunOptions(quick=True, repeats=2, only="mlp on CSV"))
    (row,) = speeds.rows
    assert len(row.ours.values) == len(row.peer.values) == 2 and row.interval[0] <= row.times_better <= row.interval[1]
    (row,) = parts.rows
    assert " ms: data " in row.ours and row.ours.endswith(" %") and row.met is None


def test_rows_without_numbers_are_distinguished(bench):
    launch, measure = bench("launch_bench"), bench("measure")
    assert launch.combined_runs([1.0, 2.0], "s") == measure.Series([1.0, 2.0])
    assert launch.combined_runs(["gone", 2.0, "gone"], "s") == "gone or 2 s"
    figure = measure.Row("row", "s", measure.Series([3.0]), "nothing reported after 10 s", at_most=2)
    assert figure.met is False and figure.times_better is None
    assert measure.Row("row", "", "7", "1", wanted="7").met is True
    assert measure.Row("row", "s", "not up after 10 s", measure.Series([1.0]), at_most=2).met is False
    table = measure.Table("Title", "peer", [figure]).as_markdown()
    assert "| row | 3.00 s (3.00-3.00) | nothing reported after 10 s |  | at most 2 s | **no** |" in table


def test_the_docs_keep_tables_of_other_machines(bench, tmp_path):
    measure = bench("measure")
    machine = {"cpu": "c", "cores": 2, "kernel": "k", "python": "3", "torch": "2", "date": "today"}

    def table(title: str, value: float) -> dict:
        row = measure.Row("row", "s", measure.Series([value]), None)
        return {**measure.Table(title, "", [row]).as_dict(), "machine": machine, "quick": False}

    page = tmp_path / "benchmarks.md"
    measure.write_docs(page, [table("First", 1.0), table("Second", 2.0)])
    before = page.read_text(encoding="utf-8")
    measure.write_docs(page, [table("Second", 3.0)])
    assert page.read_text(encoding="utf-8") == before.replace("2.00", "3.00")


def test_a_soak_sums_its_pieces(bench, tmp_path):
    pieces, seconds = bench("soak_pieces"), {"training_s": 8.0, "evaluation_s": 0.0, "restart_s": 2.0, "lost_s": 1.0}
    soak = pieces.Pieces(tmp_path)
    soak.add(pieces.Piece("one agent", 1, 20, 5.0, [], {"signal": 20}, seconds))
    assert [row.met for row in soak.rows()] == [True, None]
    soak.add(pieces.Piece("one agent", 2, 30, 5.0, ["the weights differ"]))
    kept, useful = soak.rows()
    assert (kept.ours, kept.met, useful.ours.values) == ("20 of 50", False, [70.0])


def test_row_names_are_unique_across_tables(bench):
    launch = bench("launch_bench")
    names = [row.name for _, rows in launch.TABLES for row in rows]
    assert len(names) == len(set(names))


def test_a_side_stops_its_processes(bench, ddprun_bin, tmp_path):
    agents = bench("agents")
    with agents.Side([str(ddprun_bin)], True, tmp_path) as side:
        side.start("--nproc-per-node", "2", "--no-python", side.script("exec sleep 300"))
        side.until_started(2)
        workers = [int(line[4]) for line in side.lines()]
        assert all(agents.is_alive(pid) for pid in workers)
    # a killed process continues to exist for a short time after the signal
    side.until(lambda: not any(agents.is_alive(pid) for pid in workers), 20, "not gone")


def test_a_missing_event_is_reported(bench, ddprun_bin, tmp_path):
    agents = bench("agents")
    with agents.Side([str(ddprun_bin)], True, tmp_path) as side:
        side.start("--no-python", "sleep", "300")
        with pytest.raises(agents.DeadlineExceeded, match=r"not ended after 0\.05 s"):
            side.ended(0, 0.05)
