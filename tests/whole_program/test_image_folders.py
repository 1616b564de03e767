"""Tests of training on folders of images, which are decoded during training. The tests show that a lost worker, an
interruption, or a different number of decoding threads does not change any bit of the results. The error about a damaged image
must name the file."""

import pathlib
import random
import struct
import zlib

import jobs
import pytest

PER_CLASS = 24


def png(height: int, width: int, rows: bytes) -> bytes:
    """Returns a PNG file with the red, green and blue values in `rows`, row by row."""
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    lines = b"".join(b"\0" + rows[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def write_images(folder: pathlib.Path) -> pathlib.Path:
    """Writes images of several sizes. The images of one class are mostly blue, and the images of the other class are mostly
    red."""
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
        data={"type": "folder", "dir": str(write_images(tmp_path / "images")), "classes": 2, "image_size": 8, "resize": 10, "decode_threads": 3,
              "augment": {"random_crop": True, "flip": True, "erase": 0.3}, "validation": {"samples": 8}},
        checkpoint={"every_steps": 3, "keep": 2, "keep_best": 1, "best_by": "validation_accuracy"}))


def test_faults_and_threads_change_no_bit(ddprun_bin, ddptrain_bin, train, tmp_path):
    runs = {"calm": ([], {}), "killed": ([], {"DDPTRAIN_FAULT": "kill rank=1 step=7 phase=backward"}), "by one": (["data.decode_threads=1", "max_steps=4"], {})}
    for run, (changes, environment) in runs.items():
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train, *changes], **environment)
        assert done.returncode == 0, done.stderr
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "by one", train]).returncode == 0
    for run in runs:
        assert jobs.weights_digest(tmp_path / run) == jobs.weights_digest(tmp_path / "calm"), run
        jobs.assert_each_sample_once(tmp_path / run, epochs=2, samples=2 * PER_CLASS - 8)
    (tmp_path / "images/train/red/1-3.png").unlink()
    refused = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train, "epochs=3"])
    assert refused.returncode == 2 and "--data-changed" in refused.stderr, refused.stderr


@pytest.mark.parametrize("name", ["train/red/1-3.png", "test/red/1-3.png"])
def test_a_damaged_image_ends_the_run_before_its_first_step(ddprun_bin, ddptrain_bin, train, tmp_path, name):
    """All images are checked before the first step. Without this check, a damaged image of the test set would be detected only
    at the end of the first epoch."""
    image = tmp_path / "images" / name
    image.write_bytes(image.read_bytes()[:-40])
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and f"{image}: is a damaged PNG image: " in done.stderr, done.stderr
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 1, "an error of the data must not cause a restart"
    assert not (tmp_path / "run/metrics.jsonl").exists(), "the run must end before its first step"


def test_unused_files_are_counted_and_valid_images_cached(ddprun_bin, ddptrain_bin, train, tmp_path):
    (tmp_path / "images/train/red/1.webp").write_bytes(b"not a supported image")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train, "max_steps=1"])
    assert done.returncode == 0 and done.stderr.count("1 file is not used (1 *.webp)") == 1, done.stderr
    remembered = [line for file in (tmp_path / "run/picture-check").iterdir() for line in file.read_text().splitlines()]
    assert len(set(remembered)) == len(remembered) == len([*(tmp_path / "images").glob("*/*/*.png")])


def test_mixup_does_not_depend_on_the_number_of_workers(ddprun_bin, ddptrain_bin, train, tmp_path):
    """The losses with 1, 2 and 3 workers may differ by rounding only, and must differ from the losses without mixup. A lost
    worker must not change any bit."""
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
    (("data.classes=3",), "images/train: has 2 class folders, but data.classes is 3"),
    (("data.resize=7",), "expected 0 or at least image_size, which is 8, found 7 (/data/resize)"),
    (("model.type=vit", "model.n_embd=8", "model.n_head=2", "model.patch_size=3"), "model.patch_size is 3, but the images of the data set are 8 x 8: expected a divisor of height and width"),
    (("data.augment.mixup=-1",), "expected a number from 0 to 1000, found -1 (/data/augment/mixup)"),
    (("data.train_folder=none",), "images/none: cannot be listed: No such file or directory; expected a folder of images"),
])
def test_invalid_folders_are_refused(ddprun_bin, ddptrain_bin, train, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr
