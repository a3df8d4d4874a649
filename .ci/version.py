"""Give the next version its number: ``python .ci/version.py 0.1.0 2026-12-01``.

Writes it into pyproject.toml and CITATION.cff, and heads what is unreleased in CHANGELOG.md with it and its
date.
A number that ends with ``.dev0`` opens the time after a version: the changelog stays as it is.
"""

import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "## [Unreleased]\n"
_VERSION = re.compile(r"\d+\.\d+\.\d+(\.dev0)?")


def _replaced(text: str, pattern: str, line: str, *, where: str) -> str:
    """Return the text with the one line that matches replaced."""
    changed, count = re.subn(pattern, line, text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{where} states its version {count} times, not once.")
    return changed


def dated(changelog: str, *, version: str, date: str) -> str:
    """Return a changelog whose unreleased entries belong to a version."""
    if changelog.count(UNRELEASED) != 1 or f"## [{version}]" in changelog:
        sys.exit(f"CHANGELOG.md needs one part that is unreleased, and none of {version}.")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {date}\n")


def set_version(version: str, date: str, *, root: Path = ROOT) -> None:
    """Write the number where it belongs, everywhere or nowhere."""
    if not _VERSION.fullmatch(version):
        sys.exit(f"{version} is no version: 1.2.3 or 1.2.3.dev0.")
    datetime.date.fromisoformat(date)
    texts = {name: (root / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CITATION.cff")}
    made = {
        "pyproject.toml": _replaced(
            texts["pyproject.toml"], r'^version = ".*"$', f'version = "{version}"', where="pyproject.toml"
        ),
        "CITATION.cff": _replaced(
            texts["CITATION.cff"], r"^version: .*$", f"version: {version}", where="CITATION.cff"
        ),
    }
    if not version.endswith(".dev0"):
        text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
        made["CHANGELOG.md"] = dated(text, version=version, date=date)
    for name, text in made.items():
        (root / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    set_version(*sys.argv[1:])
