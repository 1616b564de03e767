"""Tests of the image data sets for configs/letters.json and configs/digits.json. configs/letters.py draws the images with the
fonts of this machine. A network must be able to learn them."""

import pathlib
import re
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).parents[2]
FONTS = pathlib.Path("/usr/share/fonts/truetype/dejavu")  # contains the fonts of Debian's package fonts-dejavu-core


def draw(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "configs/letters.py", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("PIL")
    if not FONTS.exists():
        pytest.skip("Debian's package fonts-dejavu-core is not installed")
    folder = tmp_path_factory.mktemp("drawn")
    done = draw(folder, "--fonts", FONTS, "--copies", 3)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ fonts to train on and \d+ of other families to test: letters [\d,]+ and [\d,]+, digits [\d,]+ and [\d,]+\n", done.stdout), done.stdout
    return folder


def settings(name: str, drawn: pathlib.Path, **changes) -> dict:
    config = jobs.shipped_config(name)
    config["data"]["dir"] = str(drawn / config["data"]["dir"])
    return {**config, "seed": 0, "log": {"every_steps": 1, "tensorboard": False}, "device": "cpu", **changes}


def test_the_same_fonts_give_the_same_images(drawn, tmp_path):
    assert draw(tmp_path, "--fonts", FONTS, "--copies", 3).returncode == 0
    files = sorted(path.relative_to(drawn) for path in drawn.rglob("*") if path.is_file())
    assert len(files) > 26 * 2 * 3
    assert [(drawn / file).read_bytes() for file in files] == [(tmp_path / file).read_bytes() for file in files]
    families = [{path.name.split("-")[0] for path in (drawn / "letters" / split).rglob("*.png")} for split in ("train", "test")]
    assert families[0] and families[1] and not families[0] & families[1]


def test_existing_images_are_kept_and_missing_fonts_reported(drawn, tmp_path):
    again = draw(drawn, "--fonts", FONTS)
    assert again.returncode == 1 and f"letters.py: {drawn / 'letters'} is there already" in again.stderr, again.stderr
    without = draw(tmp_path, "--fonts", tmp_path)
    assert without.returncode == 1 and f"found 0 families of fonts with letters and digits in {tmp_path}, and needs 2" in without.stderr, without.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name,classes", [("letters", 26), ("digits", 10)])
def test_a_network_learns_from_drawn_images(ddprun_bin, ddptrain_bin, drawn, tmp_path, name, classes):
    short = {"epochs": 30, "max_steps": 12, "batch_size": 16, "schedule": {"type": "constant"}}
    train = jobs.write_config(tmp_path / "train.json", settings(name, drawn, **short))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train, "data.test_samples=8"])
    assert done.returncode == 0, done.stderr
    losses = [event["loss"] for event in jobs.metrics(tmp_path / "run", "step")]
    assert sum(losses[-3:]) < sum(losses[:3]), losses
    assert jobs.metrics(tmp_path / "run", "eval")[-1]["samples"] == 8
