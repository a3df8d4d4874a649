"""`nadpvi report` as a process: streams, exit codes, and files that stay as they are."""

import subprocess
import sys

import pytest
from report_cases import people, posterior_of, release_of

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "nadpvi", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("a report é")
    posterior_of("logistic").save(place / "posterior.nc")
    release_of("logistic").save(place / "release.nc")
    release_of("poisson").save(place / "other.nc")
    people().to_csv(place / "test.csv", index=False)
    people().drop(columns="y").to_csv(place / "no_outcome.csv", index=False)
    return place


@pytest.mark.smoke
def test_a_page_is_written_whole_and_never_over_another(folder):
    options = ["--release", "release.nc", "--table", "test.csv"]
    made = run("report", "posterior.nc", "-o", "report.html", *options, cwd=folder)
    assert made.returncode == 0, made.stderr
    assert made.stdout == "report: report.html\n"
    assert "not covered by the guarantee" in made.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")

    again = run("report", "posterior.nc", "-o", "report.html", cwd=folder)
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert (folder / "report.html").read_text("utf-8") == page

    forced = run("report", "posterior.nc", "-o", "report.html", "--force", "--quiet", cwd=folder)
    assert (forced.returncode, forced.stderr) == (0, "")
    assert "Not covered by the guarantee" not in (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        (["posterior.nc", "-o", "posterior.nc", "--force"], "posterior.nc"),
        (["release.nc", "-o", "new.html"], "holds a release; expected a posterior"),
        (["missing.nc", "-o", "new.html"], "missing.nc"),
        (["posterior.nc", "-o", "nowhere/new.html"], "create it first"),
        (["posterior.nc", "-o", "new.html", "--release", "other.nc"], "not the release that the posterior"),
        (["posterior.nc", "-o", "new.html", "--table", "no_outcome.csv"], '"y"'),
        (["posterior.nc", "-o", "new.html", "--table", "missing.csv"], "missing.csv"),
    ],
)
def test_a_mistake_is_one_line(folder, arguments, needle):
    made = run("report", *arguments, "--quiet", cwd=folder)
    assert made.returncode in (1, 2)
    assert made.stdout == ""
    assert len(made.stderr.strip().splitlines()) == 1, made.stderr
    assert needle in made.stderr
    assert not (folder / "new.html").exists()
