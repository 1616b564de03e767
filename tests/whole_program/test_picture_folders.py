"""Folders of images train a network while they are decoded: neither a lost worker nor an interruption nor another number of threads changes a bit,
and a damaged image is named."""

import pathlib
import random
import struct
import zlib

import jobs
import pytest

PER_CLASS = 24


def png(height: int, width: int, rows: bytes) -> bytes:
    """A PNG file from red, green and blue values, row by row."""
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    lines = b"".join(b"\0" + rows[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def write_pictures(folder: pathlib.Path) -> pathlib.Path:
    """Writes images of several sizes. Those of one class are mostly red, those of the other mostly blue."""
    draw = random.Random(1)
    for split in ("train", "test"):
        for label, (name, shift) in enumerate((("blue", (0, 0, 60)), ("red", (60, 0, 0)))):
            (folder / split / name).mkdir(parents=True)
            for i in range(PER_CLASS):
                height, width = draw.randint(12, 30), draw.randint(12, 30)
                rows = bytes(draw.randint(0, 195) + shift[c] for _ in range(height * width) for c in range(3))
                (folder / split / name / f"{label}-{i}.png").write_bytes(png(height, width, rows))
    return folder


@pytest.fixture
def train(tmp_path):
    return jobs.write_config(tmp_path / "train.json", jobs.config(
        "", model={"type": "resnet20"}, optimizer={"type": "sgd", "lr": 0.05}, batch_size=8,
        data={"type": "folder", "dir": str(write_pictures(tmp_path / "pictures")), "classes": 2, "image_size": 8, "resize": 10, "decode_threads": 3,
              "augment": {"random_crop": True, "flip": True, "erase": 0.3}, "validation": {"samples": 8}},
        checkpoint={"every_steps": 3, "keep": 2, "keep_best": 1, "best_by": "validation_accuracy"}))


def test_nothing_changes_a_bit(ddprun_bin, ddptrain_bin, train, tmp_path):
    runs = {"calm": ([], {}), "killed": ([], {"DDPTRAIN_FAULT": "kill rank=1 step=7 phase=backward"}), "by one": (["data.decode_threads=1", "max_steps=4"], {})}
    for run, (changes, environment) in runs.items():
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train, *changes], **environment)
        assert done.returncode == 0, done.stderr
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "by one", train]).returncode == 0
    for run in runs:
        assert jobs.weights_digest(tmp_path / run) == jobs.weights_digest(tmp_path / "calm"), run
        jobs.assert_each_sample_once(tmp_path / run, epochs=2, samples=2 * PER_CLASS - 8)
    (tmp_path / "pictures/train/red/1-3.png").unlink()
    refused = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train, "epochs=3"])
    assert refused.returncode == 2 and "--data-changed" in refused.stderr, refused.stderr


@pytest.mark.parametrize("name", ["train/red/1-3.png", "test/red/1-3.png"])
def test_a_damaged_picture_ends_the_run_before_its_first_step(ddprun_bin, ddptrain_bin, train, tmp_path, name):
    """Otherwise a damaged image of the test set would be read only at the end of the first epoch."""
    picture = tmp_path / "pictures" / name
    picture.write_bytes(picture.read_bytes()[:-40])
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and f"{picture}: is a damaged PNG picture: " in done.stderr, done.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 1, "such an end needs no restart"
    assert not (tmp_path / "run/metrics.jsonl").exists(), "no step was made"


def test_files_that_are_not_used_are_counted_and_sound_pictures_are_remembered(ddprun_bin, ddptrain_bin, train, tmp_path):
    (tmp_path / "pictures/train/red/1.webp").write_bytes(b"no picture of ours")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train, "max_steps=1"])
    assert done.returncode == 0 and done.stderr.count("1 file is not used (1 *.webp)") == 1, done.stderr
    remembered = [line for file in (tmp_path / "run/picture-check").iterdir() for line in file.read_text().splitlines()]
    assert len(set(remembered)) == len(remembered) == len([*(tmp_path / "pictures").glob("*/*/*.png")])


def test_mixed_pictures_do_not_depend_on_the_number_of_workers(ddprun_bin, ddptrain_bin, train, tmp_path):
    """The losses of 1, 2 and 3 workers agree within rounding and differ from those without mixing. A lost worker changes no bit."""
    runs = {"1": (1, 0.4, ""), "2": (2, 0.4, ""), "3": (3, 0.4, ""), "killed": (2, 0.4, "kill rank=1 step=7 phase=backward"), "whole": (2, 0, "")}
    for run, (workers, alpha, fault) in runs.items():
        done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", tmp_path / run, train, "model={\"type\":\"vit\",\"n_layer\":1,\"n_head\":2,\"n_embd\":16}",
                         f"data.augment.mixup={alpha}", "micro_batch_size=3", "batch_size=7"], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
    losses = {run: [loss for _, loss in jobs.losses(tmp_path / run)] for run in runs}
    assert losses["2"] == pytest.approx(losses["1"], rel=2e-5) and losses["3"] == pytest.approx(losses["1"], rel=2e-5)
    assert losses["killed"] == losses["2"] and jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "2")
    assert losses["whole"] != pytest.approx(losses["2"], rel=1e-3)
    jobs.assert_each_sample_once(tmp_path / "3", epochs=2, samples=2 * PER_CLASS - 8)


@pytest.mark.parametrize("changes,words", [
    (("data.classes=3",), "pictures/train: has 2 folders, each of which is a class; data.classes is 3"),
    (("data.resize=7",), "expected 0 or at least image_size, which is 8, found 7 (/data/resize)"),
    (("model.type=vit", "model.n_embd=8", "model.n_head=2", "model.patch_size=3"), "model.patch_size is 3, but the data set's pictures are 8 x 8: it has to divide both sides"),
    (("data.augment.mixup=-1",), "expected a number from 0 to 1000, found -1 (/data/augment/mixup)"),
    (("data.train_folder=none",), "pictures/none: can't be listed: No such file or directory; expected a folder of pictures"),
])
def test_what_can_not_be_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr
