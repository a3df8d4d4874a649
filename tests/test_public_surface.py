"""The public surface: what `import nadpvi` promises. Who changes a name or a parameter changes this list."""

import inspect
import json
from pathlib import Path

import nadpvi

LIST = Path(__file__).parent / "data" / "public_surface.json"


def surface():
    """Return each public name with its parameters, or with its public attributes where it is a module."""
    found = {}
    for name in sorted(nadpvi.__all__):
        thing = getattr(nadpvi, name)
        if inspect.ismodule(thing):
            for inner in sorted(thing.__all__):
                found[f"{name}.{inner}"] = parameters(getattr(thing, inner))
        else:
            found[name] = parameters(thing)
            if inspect.isclass(thing) and not issubclass(thing, BaseException):
                found |= {f"{name}.{method}": parameters(getattr(thing, method)) for method in methods(thing)}
    return found


def methods(kind):
    """Return the names of a class's own public methods and properties."""
    inherited = (base for base in kind.__mro__ if base.__module__.startswith("nadpvi"))
    names = {name for base in inherited for name in vars(base) if not name.startswith("_")}
    return sorted(name for name in names if callable(getattr(kind, name)) or is_property(kind, name))


def is_property(kind, name):
    return isinstance(inspect.getattr_static(kind, name), property)


def parameters(thing):
    """Return the names of parameters, with a star before those that are keyword-only; "" without any."""
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    found = []
    for parameter in signature.parameters.values():
        star = "*" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
        default = "" if parameter.default is inspect.Parameter.empty else "?"
        found.append(f"{star}{parameter.name}{default}")
    return " ".join(found)


def test_the_public_surface_is_the_listed_one():
    """To change it on purpose: write `surface()` to the list, and say so in CHANGELOG."""
    assert surface() == json.loads(LIST.read_text(encoding="utf-8"))


def test_types_are_shipped():
    assert (Path(nadpvi.__file__).parent / "py.typed").is_file()
