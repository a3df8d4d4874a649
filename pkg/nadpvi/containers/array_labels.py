"""Names of phi's coordinates that a user hands over."""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from nadpvi.errors import ArgumentError

__all__ = ["coordinate_labels"]


def coordinate_labels(labels: Any, *, dimension: int) -> tuple[str, ...]:
    """Return D labels as text that a file gives back as it was; ``phi[0]``, ``phi[1]``, ... for None.

    Raises
    ------
    ArgumentError
        Unless they are D different texts, in an order, without NUL and in Unicode that can be written.
    """
    if labels is None:
        return tuple(f"phi[{i}]" for i in range(dimension))
    rule = f"phi_labels must be {dimension} different names, each of them text"
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        raise ArgumentError(f"{rule}, in a list (got type {type(labels).__name__}).")
    names = list(labels)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(
                f"{rule} (one is of type {type(name).__name__}): str() makes text of a number."
            )
        if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ArgumentError(f"{rule}: {name!r} holds a character that no file can keep.")
    if len(names) != dimension or len(set(names)) != dimension:
        raise ArgumentError(f"{rule} (got {len(names)}, {len(set(names))} of them different).")
    return tuple(str(name) for name in names)
