"""Options that go together, as one parameter of a command: named once, in a dataclass."""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

__all__ = ["with_groups"]

Command = Callable[..., None]


def with_groups(command: Command) -> Command:
    """Return a command for Typer in which the fields of dataclass parameters are options of their own.

    Parameters
    ----------
    command : function
        A parameter of it may be annotated with a dataclass whose fields are annotated as Typer has its
        options; the dataclass is filled in from them. Options that must be given come first, and otherwise
        they keep their order.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}

    def called(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    options = [option for parameter in _parameters(command, hints) for option in _expanded(parameter)]
    options.sort(key=lambda option: option.default is not inspect.Parameter.empty)
    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in options}
    called.__name__ = command.__name__
    # The mark keeps the lines of an example as they are. From Python 3.13 on docstrings have no indentation.
    called.__doc__ = inspect.cleandoc(command.__doc__ or "").replace("\nExample:", "\n\b\nExample:")
    return called


def _parameters(command: Command, hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield a command's parameters with their types as objects."""
    for parameter in inspect.signature(command).parameters.values():
        yield parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)


def _expanded(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the fields of a group as parameters; any other parameter as it is."""
    group = parameter.annotation
    if not dataclasses.is_dataclass(group):
        yield parameter
        return
    hints = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield parameter.replace(name=field.name, annotation=hints[field.name], default=default)
