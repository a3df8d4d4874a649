"""The pages in docs/: every link between files leads somewhere, and the API page has every public name."""

import importlib.util
import re
from pathlib import Path

import pytest

import nadpvi

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/results/*.md"),
        *ROOT.glob("benchmarks/results/*.md"),
        *ROOT.glob("*.md"),
    ]
)
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^)>\s]+)>?\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets of a page's links, but for those to the web."""
    return [t for t in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))) if "://" not in t]


def anchors(page: Path) -> set[str]:
    """The anchors that a code host, and MyST likewise, makes from headings."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path):
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_file(), f"{target} is not there"
        assert not anchor or anchor in anchors(there), f"{target}: no such heading"


def test_links_are_found_and_broken_ones_told(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading: this!\n[a](b.md) ![c](<d.svg>) [e](#a-heading-this) [w](https://example.org)\n"
    )
    assert links(page) == ["b.md", "d.svg", "#a-heading-this"]
    assert anchors(page) == {"a-heading-this"}


def test_api_page_has_every_public_name():
    spec = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "_ext" / "public_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    listed = set(re.findall(r"^   (nadpvi\.\S+)$", module.api_page(), re.MULTILINE))
    assert {f"nadpvi.{name}" for name in nadpvi.__all__} - set(module.MODULES) <= listed
    assert {f"nadpvi.models.{name}" for name in nadpvi.models.__all__} <= listed
    groups = dict(module.groups("__all__ = [\n    # One\n    'a',\n    'b',\n    # Two\n    'c',\n]\n"))
    assert groups == {"One": ["a", "b"], "Two": ["c"]}


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(?:.* <)?([\w./]+)>?$", "\n".join(_FENCED.findall(index)), re.MULTILINE))
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= listed
    assert {"tutorial", "generated/api", "../README"} <= listed


def test_citation_has_the_version_of_the_package():
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    stated = re.search(
        r'^version = "(\S+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cited.group(1) == stated.group(1)
