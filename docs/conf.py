"""Settings of Sphinx. Its source folder is the checkout, so that links are those of a code host."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from public_names import write_api_page

project = "nadpvi"
author = "The nadpvi developers"
project_copyright = "The nadpvi developers"
release = version = installed_version("nadpvi")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/results/*.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
# engine.md is a part of docs/speed.md, without a title of its own.
exclude_patterns = [
    "benchmarks/results/engine.md",
    ".*",
    "build",
    "dist",
    "pkg",
    "stan",
    "tests",
    "examples",
    "docs/_*",
    "**/__pycache__",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = [str(Path(__file__).parent / "_templates")]  # autosummary looks in the source folder

# Nothing is fetched, when the pages are built or when they are read.
html_theme = "pydata_sphinx_theme"
html_title = "nadpvi"
html_extra_path = ["_root"]
html_copy_source = False
# The header has no room for this many pages: they are all at the side.
html_sidebars = {"**": ["all-pages"]}
html_theme_options = {
    "navbar_center": [],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

myst_heading_anchors = 3
nitpicky = True
# tests/test_docs.py asks that every page is in the index, but for those that land before it knows them.

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

write_api_page(Path(__file__).parent / "generated")
