"""Hold what was built against the checkout: all that belongs into a wheel and an sdist, and nothing else.

``python .ci/contents.py dist`` after a build; exits with 1 and names what is missing or foreign.
"""

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
# Folders that are not the package's own, and where a wheel has them.
FORCED = {"stan": "nadpvi/stan", "benchmarks/experiments": "nadpvi/experiments/files"}
SOURCE_FOLDERS = (".ci", "benchmarks", "docs", "examples", "pkg", "stan", "tests")
SOURCE_FILES = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "pyproject.toml",
)
# Added by the build: what describes the archive.
ADDED = {"PKG-INFO", ".gitignore"}
LICENCES = ("licenses/LICENSE", "licenses/pkg/nadpvi/datasets/LICENSE-adult.md")
# Named one by one, so that it is noticed when they are no longer in the checkout either.
NEEDED = (
    "nadpvi/py.typed",
    "nadpvi/stan/gradient_model.stan",
    "nadpvi/stan/parts/functions.stan",
    "nadpvi/experiments/files/adult.toml",
    "nadpvi/datasets/adult.data.gz",
    "nadpvi/datasets/adult.toml",
    "nadpvi/datasets/LICENSE-adult.md",
)
_MADE = re.compile(r"(^|/)(__pycache__|\.[a-z]+_cache|\.hypothesis|generated)(/|$)|\.py[co]$")


def files_below(folder: Path) -> Iterator[PurePosixPath]:
    """Yield the files of a folder, relative to it, without what tools have made."""
    for path in sorted(folder.rglob("*")):
        name = PurePosixPath(path.relative_to(folder).as_posix())
        if path.is_file() and not _MADE.search(str(name)):
            yield name


def wheel_due(root: Path) -> set[str]:
    """Return what a wheel must hold, without its description."""
    due = {f"nadpvi/{name}" for name in files_below(root / "pkg" / "nadpvi")} | set(NEEDED)
    for source, target in FORCED.items():
        due |= {f"{target}/{name}" for name in files_below(root / source)}
    return due


def sdist_due(root: Path) -> set[str]:
    """Return what an sdist must hold."""
    below = {f"{folder}/{name}" for folder in SOURCE_FOLDERS for name in files_below(root / folder)}
    return below | set(SOURCE_FILES)


def wheel_faults(names: list[str], *, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a wheel's list of files."""
    described = [name.split("/", 1) for name in names if ".dist-info/" in name.split("/", 1)[0] + "/"]
    info = {rest for _, rest in described}
    faults = [f"missing: .dist-info/{name}" for name in LICENCES if name not in info]
    return faults + _differences({name for name in names if ".dist-info/" not in name}, wheel_due(root))


def sdist_faults(names: list[str], *, root: Path = ROOT) -> list[str]:
    """Return what is wrong with an sdist's list of files, which all start with one folder's name."""
    return _differences({name.split("/", 1)[1] for name in names} - ADDED, sdist_due(root))


def _differences(found: set[str], due: set[str]) -> list[str]:
    """Return a line for each file that is missing or does not belong."""
    return [f"missing: {name}" for name in sorted(due - found)] + [
        f"does not belong: {name}" for name in sorted(found - due)
    ]


def main(folder: str) -> int:
    """Check the one wheel and the one sdist in a folder."""
    (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    with tarfile.open(sdist) as packed:
        members = [member.name for member in packed.getmembers() if member.isfile()]
    faults = [f"{wheel.name}: {line}" for line in wheel_faults(names)]
    faults += [f"{sdist.name}: {line}" for line in sdist_faults(members)]
    sys.stdout.write(
        "\n".join(faults) + "\n" if faults else f"{len(names)} and {len(members)} files, as due\n"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
