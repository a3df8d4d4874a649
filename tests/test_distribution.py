"""What a wheel and an sdist hold, how a version gets its number, and the changelog's form."""

import datetime
import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def load(name: str):
    """A script of .ci as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contents, version = load("contents"), load("version")


class TestContents:
    """`make wheel` holds the built archives against these lists; here, that the lists tell a fault."""

    @staticmethod
    def wheel():
        info = [f"nadpvi-0.1.dist-info/{name}" for name in (*contents.LICENCES, "METADATA", "RECORD")]
        return sorted(contents.wheel_due(ROOT)) + info

    @staticmethod
    def sdist():
        return [f"nadpvi-0.1/{name}" for name in (*sorted(contents.sdist_due(ROOT)), "PKG-INFO")]

    def test_a_whole_wheel_and_sdist_pass(self):
        assert contents.wheel_faults(self.wheel()) == []
        assert contents.sdist_faults(self.sdist()) == []

    @pytest.mark.parametrize(
        "name", [*contents.NEEDED, "nadpvi/__init__.py", "nadpvi/stan/parts/theta.stan", "nadpvi/cli/app.py"]
    )
    def test_what_a_wheel_lacks_is_named(self, name):
        assert contents.wheel_faults([n for n in self.wheel() if n != name]) == [f"missing: {name}"]

    @pytest.mark.parametrize("licence", contents.LICENCES)
    def test_a_licence_that_a_wheel_lacks_is_named(self, licence):
        names = [name for name in self.wheel() if not name.endswith(f"dist-info/{licence}")]
        assert contents.wheel_faults(names) == [f"missing: .dist-info/{licence}"]

    @pytest.mark.parametrize(
        "name", ["tests/test_wall.py", "nadpvi/__pycache__/a.cpython-311.pyc", "docs/index.md", "people.csv"]
    )
    def test_what_does_not_belong_into_a_wheel_is_named(self, name):
        assert contents.wheel_faults([*self.wheel(), name]) == [f"does not belong: {name}"]

    @pytest.mark.parametrize(
        "name", ["docs/generated/api.rst", ".mypy_cache/a.json", "tests/__pycache__/a.pyc"]
    )
    def test_what_was_made_does_not_belong_into_an_sdist(self, name):
        assert contents.sdist_faults([*self.sdist(), f"nadpvi-0.1/{name}"]) == [f"does not belong: {name}"]

    @pytest.mark.parametrize(
        "name",
        [
            "CHANGELOG.md",
            "tests/conftest.py",
            "stan/gradient_model.stan",
            "docs/tutorial.md",
            "examples/coin.py",
        ],
    )
    def test_what_an_sdist_lacks_is_named(self, name):
        names = [n for n in self.sdist() if n != f"nadpvi-0.1/{name}"]
        assert contents.sdist_faults(names) == [f"missing: {name}"]


class TestVersion:
    @pytest.fixture
    def copy(self, tmp_path):
        for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
            shutil.copy(ROOT / name, tmp_path / name)
        # With something unreleased, which there is not just after a version.
        path = tmp_path / "CHANGELOG.md"
        path.write_text(
            path.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- A word.\n")
        )
        return tmp_path

    def test_a_version_is_written_everywhere(self, copy):
        version.set_version("9.1.0", "2031-02-03", root=copy)
        assert tomllib.loads((copy / "pyproject.toml").read_text())["project"]["version"] == "9.1.0"
        assert "\nversion: 9.1.0\n" in (copy / "CITATION.cff").read_text()
        text = (copy / "CHANGELOG.md").read_text()
        assert "## [Unreleased]\n\n## [9.1.0] - 2031-02-03\n\n### Added\n\n- A word.\n" in text
        version.set_version("9.2.0.dev0", "2031-02-04", root=copy)
        assert (copy / "CHANGELOG.md").read_text() == text
        assert "\nversion: 9.2.0.dev0\n" in (copy / "CITATION.cff").read_text()

    @pytest.mark.parametrize(
        ("number", "date"), [("9.1", "2031-02-03"), ("9.1.0", "3.2.2031"), ("x", "2031-02-03")]
    )
    def test_what_is_no_version_or_date_changes_nothing(self, copy, number, date):
        before = {path.name: path.read_text() for path in copy.iterdir()}
        with pytest.raises((SystemExit, ValueError)):
            version.set_version(number, date, root=copy)
        assert {path.name: path.read_text() for path in copy.iterdir()} == before

    def test_a_version_is_given_once(self, copy):
        version.set_version("9.1.0", "2031-02-03", root=copy)
        with pytest.raises(SystemExit, match=r"none of 9\.1\.0"):
            version.set_version("9.1.0", "2031-02-04", root=copy)


def faults_of(changelog: str, stated: str) -> list[str]:
    """What is not as Keep a Changelog has it, for the version that the package states."""
    faults = []
    heads = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    if not heads or heads[0] != "[Unreleased]":
        faults.append("what is unreleased does not come first")
    found = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", head) for head in heads[1:]]
    if None in found:
        faults.append("a version without its number or date")
        return faults
    numbers = [tuple(map(int, match[1].split("."))) for match in found]
    dates = [datetime.date.fromisoformat(match[2]) for match in found]
    if numbers != sorted(set(numbers), reverse=True) or dates != sorted(dates, reverse=True):
        faults.append("versions are not in order")
    if not stated.endswith(".dev0") and tuple(map(int, stated.split("."))) not in numbers[:1]:
        faults.append("the package's version is not the newest")
    for part in re.split(r"^## .*$", changelog, flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", part, re.MULTILINE)
        if set(sections) - SECTIONS or len(sections) != len(set(sections)):
            faults.append("an unknown section, or one that comes twice")
    return faults


def test_changelog_is_as_keep_a_changelog_has_it():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert faults_of(CHANGELOG, stated) == []


@pytest.mark.parametrize(
    ("changelog", "stated", "fault"),
    [
        ("## [0.1.0] - 2026-01-01\n", "0.1.0", "does not come first"),
        ("## [Unreleased]\n## [0.1.0]\n", "0.1.0", "without"),
        ("## [Unreleased]\n## [0.1.0] - 2026-01-01\n## [0.2.0] - 2025-01-01\n", "0.1.0", "order"),
        ("## [Unreleased]\n## [0.1.0] - 2026-01-01\n", "0.2.0", "newest"),
        ("## [Unreleased]\n### Added\n### Added\n", "0.1.0.dev0", "twice"),
        ("## [Unreleased]\n### Improved\n", "0.1.0.dev0", "unknown"),
    ],
)
def test_a_changelog_that_is_not_is_told(changelog, stated, fault):
    assert fault in " ".join(faults_of(changelog, stated))
