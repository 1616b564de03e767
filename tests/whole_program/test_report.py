"""Tests of the output of `ddprun report`, as text and as an HTML page, for a real run that failed and continued."""

import base64
import hashlib
import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree

import jobs
import live_jobs
import pytest


@pytest.fixture(scope="module")
def run_dir(ddprun_bin, tmp_path_factory) -> pathlib.Path:
    """Returns a run in which rank 1 was killed in step 18. Training waits for each save, so the checkpoint of step 14 was
    complete before the kill."""
    folder = tmp_path_factory.mktemp("report")
    data = jobs.write_small_dataset(folder / "data")
    config = jobs.write_config(folder / "train.json", jobs.config(data, checkpoint={"every_steps": 7, "keep": 3, "background": False}))
    done = jobs.run([ddprun_bin, "--recovery", "checkpoint", "--nproc-per-node", 2, "--run-dir", folder / "run", config],
                    DDPTRAIN_FAULT="kill rank=1 step=17")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_the_report_accounts_for_steps_and_time(ddprun_bin, run_dir):
    report = jobs.report(run_dir)
    first, second = report["rounds"]
    assert (first["from_step"], second["from_step"]) == (0, 14)
    assert 14 <= first["reached_step"] <= 17  # depends on the last progress message that the agent received
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
    """A parser that checks that tags are closed in the correct order. It collects all attributes."""

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


def test_the_page_is_self_contained(page):
    text = page.read_text(encoding="utf-8")
    seen = Page(text)
    assert not [a for a in seen.attributes if a[1] in ("src", "href", "onclick")]
    assert "<script" not in text and "@import" not in text and "url(" not in text
    assert text.count("<polyline") == 2 + 1  # two curves per step (loss and speed), and one for the accuracy
    # The curve of the accuracy has no marks. The failure, and step 14, at which training resumed, are before the first
    # evaluation.
    assert text.count("<title>resumed at step 14</title>") == 2
    assert len(re.findall(r"<title>rank 1 on [^<]* SIGKILL at step 1\d<", text)) == 2
    # This is the mark of the failure on the time line.
    assert len(re.findall(r'class="failure" d="[^"]*"><title>round 0: rank 1 on ', text)) == 1
    assert text.count('class="round"') == 2
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in seen.attributes
    assert ("meta", "content", "width=device-width, initial-scale=1") in seen.attributes


class Followed:
    """A page that `ddprun report --follow` rewrites. `texts` contains each version of the page that the test has read. The key
    is the time in ns at which the version was written."""

    def __init__(self, process: subprocess.Popen, page: pathlib.Path):
        self.process, self.page = process, page
        self.texts: dict[int, str] = {}
        assert process.stdout.readline() == f"the page is {page}, which is rewritten until the job ends\n", process.stderr.read()

    def newest(self) -> str:
        with self.page.open(encoding="utf-8") as file:  # an open file does not change when the page is replaced
            return self.texts.setdefault(os.fstat(file.fileno()).st_mtime_ns, file.read())

    def until(self, pattern: str) -> str:
        jobs.wait_for(lambda: re.search(pattern, self.newest()), f"{pattern} in the page")
        return self.newest()

    def end(self) -> str:
        """Waits until the command ends, and returns its output."""
        output, errors = self.process.communicate(timeout=60)
        assert errors == "" and not list(self.page.parent.glob(".*tmp*"))
        return output


REFRESH = ("meta", "http-equiv", "refresh")


def test_the_page_of_a_running_job_follows_it(ddprun_bin, data, tmp_path):
    variables = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    (tmp_path / "runtime").mkdir()
    with live_jobs.Job(ddprun_bin, tmp_path / "job", data, 2, env=variables, epochs=100000) as job:
        job.wait_until(lambda job: job.step >= 20)
        jobs.wait_for(lambda: list((tmp_path / "runtime" / "ddprun").glob("*.sock")), "the job's socket")
        followed = Followed(jobs.start([ddprun_bin, "report", job.run_dir, "--html", tmp_path / "live.html", "--follow"], **variables), tmp_path / "live.html")
        first = followed.newest()
        seen = Page(first)
        assert REFRESH in seen.attributes and not [a for a in seen.attributes if a[1] in ("src", "href", "onclick")]
        script = re.search(r"(?s)<script>(.*?)</script>", first)[1]
        assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in first
        for rank in (0, 1):
            assert re.search(rf"<tr><td>{rank}</td>.*<td>{job.pids[rank]}</td><td>logs/round-000/rank-0000{rank}</td></tr>", first), first
        assert re.search(r"running for .* 0 of 100000 restarts used", first) and re.search(r"<progress max=\"\d+\" value=\"\d+\">", first)
        # Before a round ends, the file of the report does not contain its training time. So the page must get it from the
        # agent.
        assert re.search(r"<title>training: ", first) and "<h3>Loss</h3>" in first
        job.kill(1)
        after = followed.until(r'class="failure kept" d="[^"]*"><title>round 0: rank 1 on [^<]*SIGKILL')
        assert REFRESH in Page(after).attributes
        followed.until(rf"<td>{job.pids[1]}</td>")
        jobs.wait_for(lambda: followed.newest() and len(followed.texts) >= 4, "four versions of the page")
        # Without arguments, the command follows the only running job. The page of that job is in the run directory.
        other = Followed(jobs.start([ddprun_bin, "report", "--html", "--follow"], **variables), job.run_dir / "report.html")
        other.process.send_signal(signal.SIGINT)
        assert other.end() == "" and other.process.returncode == 128 + signal.SIGINT
        stopped = (job.run_dir / "report.html").read_text(encoding="utf-8")
        assert "ddprun report has ended" in stopped and REFRESH not in Page(stopped).attributes
        job.process.send_signal(signal.SIGTERM)
        job.finish()
    written = sorted(followed.texts)
    gaps = [later - earlier for earlier, later in zip(written, written[1:])]
    # Each step is an event that causes a rewrite after 2 s. If there are no events, the page is rewritten after 5 s.
    assert min(gaps) >= 1.99e9 and min(gaps) < 4.9e9, gaps
    assert followed.end().startswith("the job has ended: ") and followed.process.returncode == 0
    last = followed.newest()
    assert REFRESH not in Page(last).attributes and "Workers" not in last
    assert html.escape(jobs.report(job.run_dir)["exit"]["why"]) in last


def test_the_page_of_a_script_without_a_run_directory(waiting, tmp_path):
    """The report of this job is in a temporary folder, which is removed at the end of the job."""
    job = waiting()
    assert "this job has no run directory, " in job.query("report", "--html", "--follow", code=2)
    followed = Followed(jobs.start([job.bin, "report", job.pid, "--html", tmp_path / "page.html", "--follow"], **job.variables), tmp_path / "page.html")
    assert "running for " in followed.newest()
    assert job.end() == 0
    assert followed.end() == "the job has ended: exit code 0: done; the temporary report was removed\n"
    assert "exit code 0: done" in followed.newest() and REFRESH not in Page(followed.newest()).attributes


def test_the_browser_of_a_followed_page_can_be_stopped(waiting, tmp_path):
    """--follow blocks the signals that stop it. The browser that it starts must not inherit the blocked signals."""
    # The simulated browser is not a shell script, because dash unblocks all signals when it starts.
    (tmp_path / "xdg-open").write_text(f"#!{sys.executable}\nopen('{tmp_path}/blocked', 'w').write(open('/proc/self/status').read())\n")
    (tmp_path / "xdg-open").chmod(0o755)
    job = waiting()
    follower = jobs.start([job.bin, "report", job.pid, "--html", tmp_path / "page.html", "--open", "--follow"],
                          **{**job.variables, "DISPLAY": ":7", "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert follower.stdout.readline() == f"opened {tmp_path}/page.html, which is rewritten until the job ends\n"
    assert re.search(r"(?m)^SigBlk:\s0+$", (tmp_path / "blocked").read_text())
    assert job.end() == 0 and follower.wait(timeout=60) == 0


def test_the_page_of_a_killed_agent(ddprun_bin, data, tmp_path):
    """After the agent has died, the guardian adds the end of the run to the report. The last page must contain this end."""
    variables = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    (tmp_path / "runtime").mkdir()
    with live_jobs.Job(ddprun_bin, tmp_path / "job", data, 2, env=variables, epochs=100000) as job:
        job.wait_until(lambda job: job.step >= 1)
        jobs.wait_for(lambda: list((tmp_path / "runtime" / "ddprun").glob("*.sock")), "the job's socket")
        followed = Followed(jobs.start([ddprun_bin, "report", job.run_dir, "--html", "--follow"], **variables), job.run_dir / "report.html")
        job.process.kill()
        job.finish()
    assert followed.end() == "the job has ended: exit code 137: the agent was killed\n"
    assert "exit code 137: the agent was killed" in followed.newest()


def test_to_follow_a_run_that_has_ended(ddprun_bin, run_dir, tmp_path):
    done = jobs.run([ddprun_bin, "report", run_dir, "--html", tmp_path / "page.html", "--follow"], XDG_RUNTIME_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == ("ddprun report: --follow has no effect, since the job does not run on this machine: "
                           f"the page {tmp_path}/page.html was written once\n")
    assert REFRESH not in Page((tmp_path / "page.html").read_text(encoding="utf-8")).attributes


def test_a_page_without_a_name_is_in_the_run_directory(ddprun_bin, run_dir):
    done = jobs.run([ddprun_bin, "report", "--html", "--open", run_dir])
    assert done.stdout == f"the page is {run_dir}/report.html\n", done.stderr
    (run_dir / "report.html").unlink()
    done = jobs.run([ddprun_bin, "report", run_dir, "--html"])
    assert done.stdout == f"the page is {run_dir}/report.html\n" and (run_dir / "report.html").exists(), done.stderr


@pytest.mark.parametrize("kind", ["device", "folder"])
def test_only_a_regular_file_is_followed(waiting, tmp_path, kind):
    job = waiting()
    page = "/dev/null" if kind == "device" else tmp_path
    assert f"{page} is not a regular file: --follow replaces its page" in job.query("report", "--html", page, "--follow", code=2)
    assert job.end() == 0


def test_a_browser_renders_the_page(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium")
    common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run([*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    assert dom.stdout.count("<polyline") == 3
    assert "signal" in dom.stdout
    assert "CONSOLE" not in dom.stderr
    screenshot = tmp_path / "phone.png"
    subprocess.run([*common, "--window-size=390,844", f"--screenshot={screenshot}", page.as_uri()], capture_output=True, timeout=60, check=True)
    assert screenshot.stat().st_size > 10000  # the screenshot of an empty page would be smaller


def test_a_page_that_cannot_be_written_is_one_line(ddprun_bin, run_dir, tmp_path):
    done = jobs.run([ddprun_bin, "report", run_dir, "--html", tmp_path / "no" / "report.html"])
    assert done.returncode == 2
    assert done.stderr.startswith("ddprun: cannot write ")


def test_the_newest_run_is_the_default(ddprun_bin, tmp_path):
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
    # The loss of 5 is the largest value in the plot, so its y coordinate is 0.
    assert [len(points) for points in curves] == [steps, 1] and curves[1][0].endswith(",0")
    assert any(text.text == f"{other}: 5 at step 10" for text in root.iter("{http://www.w3.org/2000/svg}text"))
    nothing = jobs.run([ddprun_bin, "plot", run_dir, "--figure", "beauty"])
    assert nothing.returncode == 2 and "no metrics.jsonl of these runs contains the metric 'beauty'" in nothing.stderr
    assert re.search(r"--figure accepts: accuracy, .*loss, ", nothing.stderr), nothing.stderr


def test_a_plot_has_axis_numbers(ddprun_bin, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(f'{{"event":"step","step":{step},"loss":{2.3 - step / 500}}}\n' for step in range(10, 1010, 10)))
    done = jobs.run([ddprun_bin, "plot", tmp_path / "run", "--output", tmp_path / "one.svg"])
    assert done.returncode == 0, done.stderr
    root = xml.etree.ElementTree.fromstring((tmp_path / "one.svg").read_text())
    texts = {text.text.strip(): (float(text.get("x")), float(text.get("y"))) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"0.5", "1", "1.5", "2", "200", "400", "600", "800", "1000"} <= set(texts), texts
    assert all(x < 0 or y < 0 or y > 360 for x, y in texts.values()), "labels must be outside of the area of the curves, which is 360 high"


@pytest.mark.parametrize("link", ["folder of runs", "run", "report"])
def test_a_foreign_link_in_the_temporary_folder_is_not_followed(ddprun_bin, tmp_path, link):
    """Another user may have created a link in the shared temporary folder. If `ddprun report` followed it, the HTML page would
    be written next to the linked report, outside this folder."""
    shared = tmp_path / "shared"
    place = shared / "torchelastic_x" / "run"
    own = tmp_path / "own" / "run"
    for folder in (own, shared, tmp_path / "here"):
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
                          env=jobs.clean_environment(TMPDIR=str(shared), XDG_RUNTIME_DIR=str(tmp_path)))
    assert "torchelastic_x" not in done.stdout and not list(tmp_path.rglob("report.html"))
