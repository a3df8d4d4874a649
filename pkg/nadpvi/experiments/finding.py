"""Where experiments' files are: those that come with nadpvi, and a user's own."""

from pathlib import Path

import nadpvi
from nadpvi.errors import FileError

__all__ = ["experiment_names", "find_experiment"]


def _folders() -> tuple[Path, ...]:
    """Return where experiments lie: in an installed package, and in a checkout."""
    package = Path(nadpvi.__file__).parent
    return package / "experiments" / "files", package.parents[1] / "benchmarks" / "experiments"


def experiment_names() -> tuple[str, ...]:
    """Return the names of the experiments that come with nadpvi."""
    return tuple(sorted({path.stem for folder in _folders() for path in folder.glob("*.toml")}))


def find_experiment(name: str) -> Path:
    """Return the file of an experiment: a path to one, or a name from `experiment_names`.

    Raises
    ------
    FileError
        If there is none.
    """
    if name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise FileError(f"{name}: no such experiment file.")
    for folder in _folders():
        if (folder / f"{name}.toml").is_file():
            return folder / f"{name}.toml"
    raise FileError(f"no experiment is called {name!r}: choose from {', '.join(experiment_names())}.")
