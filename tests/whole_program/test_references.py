"""Tests of the store of Python results (references.py). A stored result may be used only for the inputs from which it was
computed."""

import pathlib

import pytest
import references

pytestmark = pytest.mark.skipif(bool(list(pathlib.Path("/dev").glob("nvidia[0-9]*"))), reason="a machine with a GPU keeps no results")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Returns results(*inputs), which computes a result or reads it from the store. It returns the text of the result, and True
    if the result was computed."""
    monkeypatch.setattr(references, "STORE", tmp_path / "store")
    monkeypatch.delenv("DDPRUN_LONG_TESTS", raising=False)
    count = iter(range(100))

    def of(*inputs, fails: bool = False) -> tuple[str, bool]:
        out = tmp_path / f"out-{next(count)}"
        made = []

        def make():
            made.append(True)
            (out / "losses").write_text(out.name)
            assert not fails

        references.fill(out, make, *inputs)
        return (out / "losses").read_text(), bool(made)

    return of


def test_equal_inputs_have_one_result(results, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data/train.csv").write_text("1,2\n")
    assert results("settings", 2, tmp_path / "one") == ("out-0", True)
    assert results("settings", 2, tmp_path / "two") == ("out-0", False), "equal content must give one result, also in another folder"
    assert not list((tmp_path / "store").glob("incomplete-*"))


@pytest.mark.parametrize("change", ["text", "number", "content", "name", "package", "variable"])
def test_another_input_has_another_result(results, tmp_path, monkeypatch, change):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text("1,2\n")
    assert results("settings", 2, data)[1]
    references.everything_else.cache_clear()
    if change == "content":
        (data / "train.csv").write_text("1,3\n")
    elif change == "name":
        (data / "train.csv").rename(data / "test.csv")
    elif change == "package":
        monkeypatch.setattr(references.importlib.metadata, "distributions", lambda: [])
    elif change == "variable":
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert results("other" if change == "text" else "settings", 3 if change == "number" else 2, data) == ("out-1", True)
    references.everything_else.cache_clear()


def test_a_failed_program_leaves_no_result(results):
    with pytest.raises(AssertionError):
        results("settings", fails=True)
    assert results("settings") == ("out-1", True)


def test_long_tests_compute_again(results, monkeypatch):
    assert results("settings")[1]
    monkeypatch.setenv("DDPRUN_LONG_TESTS", "1")
    assert results("settings") == ("out-1", True)


def test_a_store_that_cannot_be_written_is_no_error(results, tmp_path):
    (tmp_path / "store").write_text("a file")
    assert results("settings")[1] and results("settings")[1]
