"""What `ddprun report` makes of a real run that failed and went on: words, and a page."""

import html.parser
import pathlib
import shutil
import subprocess

import jobs
import pytest


@pytest.fixture(scope="module")
def run_dir(ddprun_bin, tmp_path_factory) -> pathlib.Path:
    """Killed in step 18, saved last at 14 (training waits for it)."""
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
    assert 14 <= first["reached_step"] <= 17  # what was heard of it
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
    """Checks that tags are closed in order; keeps their attributes."""

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
