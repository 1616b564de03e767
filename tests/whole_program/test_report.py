"""The output of `ddprun report` for a real run that failed and continued: text, and an HTML page."""

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

import jobs
import pytest


@pytest.fixture(scope="module")
def run_dir(ddprun_bin, tmp_path_factory) -> pathlib.Path:
    """A run that was killed in step 18, with its last save at step 14 (training waits for saves)."""
    folder = tmp_path_factory.mktemp("report")
    data = jobs.write_small_dataset(folder / "data")
    config = jobs.write_config(folder / "train.json", jobs.config(data, checkpoint={"every_steps": 7, "keep": 3, "background": False}))
    done = jobs.run([ddprun_bin, "--recovery", "checkpoint", "--nproc-per-node", 2, "--run-dir", folder / "run", config],
                    DDPTRAIN_FAULT="kill rank=1 step=17")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_steps_and_time_are_accounted_for(ddprun_bin, run_dir):
    report = jobs.report(run_dir)
    first, second = report["rounds"]
    assert (first["from_step"], second["from_step"]) == (0, 14)
    assert 14 <= first["reached_step"] <= 17  # the progress that the agent received
    assert first["steps_lost"] == report["steps_lost"] == first["reached_step"] - 14
    assert second["reached_step"] == 40
    time = report["time"]
    wall = (report["invocations"][0]["ended_ns"] - report["invocations"][0]["started_ns"]) / 1e9
    counted = sum(seconds for name, seconds in time.items() if name != "lost_s")
    assert counted == pytest.approx(wall, rel=0.01)
    assert time["checkpoint_s"] > 0 and time["evaluation_s"] > 0 and time["restart_s"] > 0
    text = jobs.run([ddprun_bin, "report", run_dir]).stdout
    for part in ("failures     signal (1); first rank 1 on ", "goodput", "time line    [", "first cause  rank 1"):
        assert part in text


class Page(html.parser.HTMLParser):
    """Checks that tags are closed in order, and keeps their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag


@pytest.fixture(scope="module")
def page(ddprun_bin, run_dir, tmp_path_factory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    done = jobs.run([ddprun_bin, "report", run_dir, "--html", file])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return file


def test_the_page_is_whole_and_needs_nothing_else(page):
    text = page.read_text(encoding="utf-8")
    seen = Page(text)
    assert not [a for a in seen.attributes if a[1] in ("src", "href", "onclick")]
    assert "<script" not in text and "@import" not in text and "url(" not in text
    assert text.count("<polyline") == 2 + 1  # loss, speed, accuracy
    assert text.count('class="restart"') == 2  # step 14 is before the first evaluation
    assert text.count('class="round"') == 2
    assert ("meta", "content", "width=device-width, initial-scale=1") in seen.attributes


def test_a_browser_shows_it(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium")
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run([*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    assert dom.stdout.count("<polyline") == 3
    assert "signal" in dom.stdout
    assert "CONSOLE" not in dom.stderr
    picture = tmp_path / "phone.png"
    subprocess.run([*common, "--window-size=390,844", f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=60, check=True)
    assert picture.stat().st_size > 10000  # not an empty page


def test_a_page_that_cannot_be_written_is_one_line(ddprun_bin, run_dir, tmp_path):
    done = jobs.run([ddprun_bin, "report", run_dir, "--html", tmp_path / "no" / "report.html"])
    assert done.returncode == 2
    assert done.stderr.startswith("ddprun: cannot write ")


def test_the_newest_run_is_the_one_that_is_meant(ddprun_bin, tmp_path):
    def report(*words):
        return subprocess.run([ddprun_bin, "report", *words], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
                              env=jobs.clean_environment(TMPDIR=str(tmp_path / "none"), XDG_RUNTIME_DIR=str(tmp_path)))

    for name, code in (("runs/first", 0), ("second", 3)):
        subprocess.run([ddprun_bin, "--run-dir", tmp_path / name, "--no-python", "sh", "-c", f"exit {code}"], check=False, timeout=60,
                       capture_output=True, env=jobs.clean_environment(XDG_RUNTIME_DIR=str(tmp_path)))
    assert "exit code 3" in report().stdout
    shutil.rmtree(tmp_path / "second")
    assert "exit code 0" in report().stdout
    os.utime(tmp_path / "runs/first/report.json")
    page = tmp_path / "runs/first/report.html"
    without = report("--open")
    assert without.stdout == f"the page is {page}\n" and page.read_text().startswith("<!")
    (tmp_path / "xdg-open").write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    (tmp_path / "xdg-open").chmod(0o755)
    shown = subprocess.run([ddprun_bin, "report", "runs/first", "--html", "here.html", "--open"], capture_output=True, text=True, timeout=60,
                           check=True, cwd=tmp_path, env={**jobs.clean_environment(DISPLAY=":7"), "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert shown.stdout == f"opened {tmp_path}/here.html\n" and (tmp_path / "opened").read_text() == f"{tmp_path}/here.html\n"


def test_curves_of_two_runs_in_one_plot(ddprun_bin, run_dir, tmp_path):
    other = tmp_path / "a <b>"
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"event":"step","step":10,"loss":5}\n{"event":"step","step":20,"loss":null}\n{"event":"ste')
    done = jobs.run([ddprun_bin, "plot", run_dir, other, "--output", tmp_path / "both.svg"])
    assert done.returncode == 0 and done.stdout == f"the plot is {tmp_path}/both.svg\n", done.stderr
    root = xml.etree.ElementTree.fromstring((tmp_path / "both.svg").read_text())
    curves = [line.get("points").split() for line in root.iter("{http://www.w3.org/2000/svg}polyline")]
    steps = sum(json.loads(line)["event"] == "step" for line in (run_dir / "metrics.jsonl").read_text().splitlines())
    assert [len(points) for points in curves] == [steps, 1] and curves[1][0].endswith(",0")  # 5 is the largest
    assert any(text.text == f"{other}: 5 at step 10" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    nothing = jobs.run([ddprun_bin, "plot", run_dir, "--figure", "beauty"])
    assert nothing.returncode == 2 and "no run has a figure 'beauty'" in nothing.stderr
    assert re.search(r"--figure takes one of these: accuracy, .*loss, ", nothing.stderr), nothing.stderr


def test_a_plot_has_numbers_outside_its_curves(ddprun_bin, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(f'{{"event":"step","step":{step},"loss":{2.3 - step / 500}}}\n' for step in range(10, 1010, 10)))
    done = jobs.run([ddprun_bin, "plot", tmp_path / "run", "--output", tmp_path / "one.svg"])
    assert done.returncode == 0, done.stderr
    root = xml.etree.ElementTree.fromstring((tmp_path / "one.svg").read_text())
    texts = {text.text.strip(): (float(text.get("x")), float(text.get("y"))) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"0.5", "1", "1.5", "2", "200", "400", "600", "800", "1000"} <= set(texts), texts
    assert all(x < 0 or y < 0 or y > 360 for x, y in texts.values()), "the curves have the area from 0 on, 360 high"


@pytest.mark.parametrize("link", ["folder of runs", "run", "report"])
def test_a_link_that_somebody_made_in_the_folder_for_temporary_files_leads_nowhere(ddprun_bin, tmp_path, link):
    """Otherwise the page would be written next to the report, where the maker of the link could read it."""
    everybody = tmp_path / "everybody"
    place = everybody / "torchelastic_x" / "run"
    own = tmp_path / "own" / "run"
    for folder in (own, everybody, tmp_path / "here"):
        folder.mkdir(parents=True)
    (own / "report.json").write_text("{}")
    if link == "folder of runs":
        place.parent.symlink_to(own.parent)
    elif link == "run":
        place.parent.mkdir()
        place.symlink_to(own)
    else:
        place.mkdir(parents=True)
        (place / "report.json").symlink_to(own / "report.json")
    done = subprocess.run([ddprun_bin, "report", "--open"], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path / "here",
                          env=jobs.clean_environment(TMPDIR=str(everybody), XDG_RUNTIME_DIR=str(tmp_path)))
    assert "torchelastic_x" not in done.stdout and not list(tmp_path.rglob("report.html"))
