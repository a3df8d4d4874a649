"""The API page, written from what the package lists as public."""

import ast
import io
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import nadpvi

#: Modules with names of their own beside those of ``nadpvi`` itself, and what they are.
MODULES = {
    "nadpvi.models": "Models",
    "nadpvi.tuning": "Trying settings",
    "nadpvi.coverage": "Coverage, calibration and sharpness",
    "nadpvi.baselines": "Rivals",
    "nadpvi.theory": "Theory in closed form",
    "nadpvi.datasets": "Packaged data",
}
INTRODUCTION = """\
API reference
=============

``import nadpvi as na``. What is listed here is public, and a change of it has an entry in the changelog;
everything else is internal.

"""


def groups(source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of ``__all__`` under the comments that head them."""
    listed = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__"
    )
    heading, names = "Names", []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if not listed.lineno <= token.start[0] <= (listed.end_lineno or 0):
            continue
        if token.type == tokenize.COMMENT:
            if names:
                yield heading, names
            heading, names = token.string.lstrip("# "), []
        elif token.type == tokenize.STRING:
            names.append(ast.literal_eval(token.string))
    yield heading, names


def api_page() -> str:
    """Return the page: one table for each group, whose entries have pages of their own."""
    parts = [INTRODUCTION]
    for heading, names in groups(Path(nadpvi.__file__).read_text(encoding="utf-8")):
        # A module that is public by name has its own part below.
        parts.append(
            section(heading, [f"nadpvi.{name}" for name in names if f"nadpvi.{name}" not in MODULES])
        )
    for module, heading in MODULES.items():
        names = [f"{module}.{name}" for name in import_module(module).__all__]
        parts.append(section(f"{heading}: {module}", names))
    return "\n".join(parts)


def section(heading: str, names: list[str]) -> str:
    """Return one part of the page."""
    listed = "\n".join(f"   {name}" for name in names)
    return f"{heading}\n{'-' * len(heading)}\n\n.. autosummary::\n   :toctree: api\n\n{listed}\n"


def write_api_page(folder: Path) -> None:
    """Write the page, unless it is there and as it should be: Sphinx reads again what is newer."""
    folder.mkdir(parents=True, exist_ok=True)
    path, text = folder / "api.rst", api_page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
