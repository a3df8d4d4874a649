"""Run files: what commands are asked for, in TOML, read by --config and written by --write-config.

A key is an option's long name, or an argument's name in lower case, and its value is what the command line
would have: nothing in a file is evaluated. Keys at the top are for every command that knows them; a section
named for a command is for that one alone, and comes before the top. Options given on the command line come
before both. Relative paths are relative to the file's folder.
"""

import json
import os
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import typer

from nadpvi.containers.storage import write_bytes
from nadpvi.errors import ArgumentError, FileError

__all__ = ["RunFile"]

# They mean another thing in each command, so that they belong in sections. The table at the top is the
# private one, which no report may take for its test rows.
_OWN = {"output", "release"}
_OWN_OF = {"report": _OWN | {"table"}}
_NEVER = {"config", "write-config", "force", "help"}
_GIVEN = {"COMMANDLINE", "DEFAULT_MAP"}

Values = dict[str, str | bool | list[str]]


class _Key(NamedTuple):
    """What a key stands for: a parameter of a command, and the type of its value."""

    parameter: str
    kind: Any


def _read(context: typer.Context, config: Path | None) -> Path | None:
    """Take what the command line does not give from a run file."""
    if config is not None and not context.resilient_parsing:
        context.default_map = {**_values(config, context)}
    return config


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=_read,
        help="A run file: options in TOML, for those not given here.",
    ),
]
WriteConfig = Annotated[
    Path | None,
    typer.Option("--write-config", help="Where to write a run file of what is asked for here."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The options about run files, with the context that they are read from."""

    context: typer.Context
    config: ConfigFile = None
    write_config: WriteConfig = None

    def write(self, *, overwrite: bool) -> None:
        """Write what was asked for, if that was asked for.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        import tomli_w

        if self.write_config is None:
            return
        command = _name(self.context)
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, (parameter, kind) in _keys(self.context.command).items():
            value = self.context.params.get(parameter)
            source = self.context.get_parameter_source(parameter)
            if value is None or source is None or source.name not in _GIVEN:
                continue
            if kind is Path:
                value = _from_folder(Path(value), self.write_config.parent)
            (own if key in _own(command) else shared)[key] = (
                list(value) if isinstance(value, tuple) else value
            )
        repeat = f"nadpvi {command} --config {self.write_config.name}"
        head = f"# By nadpvi {version('nadpvi')}. To repeat it: {repeat}"
        text = f"{head}\n{tomli_w.dumps(shared | ({command: own} if own else {}))}"
        write_bytes(text.encode(), self.write_config, overwrite=overwrite)


def _values(path: Path, context: typer.Context) -> Values:
    """Return what a file says about the parameters of a command, each as the command line would have it."""
    content = _content(path)
    group = context.find_root().command
    found = getattr(group, "commands", None) or {_name(context): context.command}
    commands = {
        name: keys for name, command in found.items() if "config" in (keys := _keys(command, all_of=True))
    }
    mine = commands[_name(context)]
    everywhere = {key for keys in commands.values() for key in keys}
    given: dict[str, Any] = {}
    for key, value in content.items():
        if key in commands and isinstance(value, dict):
            _check(value, known=commands[key], where=f"{path}: [{key}]")
        elif key in _OWN:
            raise ArgumentError(f"{path}: {key} belongs in a section, such as [{_name(context)}].")
        else:
            _check(
                {key: value}, known=everywhere, where=str(path), shown=[*mine, *(f"[{n}]" for n in commands)]
            )
            given |= {key: value} if key in mine and key not in _own(_name(context)) else {}
    given |= content.get(_name(context), {})
    return {mine[key].parameter: _as_typed(value, mine[key].kind, key, path) for key, value in given.items()}


def _content(path: Path) -> dict[str, Any]:
    """Return what is in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileError(f"run file {path} does not exist.") from None
    except UnicodeDecodeError:
        raise ArgumentError(f"run file {path} is not UTF-8 text; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"run file {path} is not valid TOML: {' '.join(str(error).split())}.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"run file {path} cannot be read ({reason}).") from None


def _name(context: typer.Context) -> str:
    """Return the name of the command that runs."""
    return str(context.command.name or context.info_name)


def _own(command: str) -> set[str]:
    """Return the keys that a command has from its own section only."""
    return _OWN_OF.get(command, _OWN)


def _keys(command: Any, *, all_of: bool = False) -> dict[str, _Key]:
    """Return the keys of a command: the names of what it takes."""
    if command.callback is None:  # commands under one name
        return {}
    kinds = signature(command.callback).parameters
    keys = {}
    for parameter in command.params:
        options = [name[2:] for name in parameter.opts if name.startswith("--")]
        key = options[0] if options else str(parameter.metavar or parameter.name).lower()
        if parameter.name in kinds and (all_of or key not in _NEVER):
            keys[key] = _Key(parameter.name, _kind(kinds[parameter.name].annotation))
    return keys


def _kind(annotation: Any) -> Any:
    """Return the type of a parameter's value, without what Typer is told about it and without None."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not type(None))
    return get_origin(annotation) or annotation


def _check(values: Mapping[str, Any], *, known: Any, where: str, shown: list[str] | None = None) -> None:
    """Raise `ArgumentError` at a key that is unknown, or that belongs on the command line."""
    for key in values:
        if key in _NEVER:
            raise ArgumentError(f"{where}: {key} is for the command line only; take it out of the file.")
        if key not in known:
            names = ", ".join(sorted(name for name in shown or known if name not in _NEVER))
            raise ArgumentError(f"{where}: unknown key {key!r}; known ones are {names}.")


def _as_typed(value: Any, kind: Any, key: str, path: Path) -> str | bool | list[str]:
    """Return a value as it would be typed on the command line; a path from the file's folder on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is list:
        if isinstance(value, dict):
            return [f"{name}={json.dumps(each, default=str)}" for name, each in value.items()]
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
    if kind is Path and isinstance(value, str) and "\0" not in value:
        return str(path.parent / value)
    if (kind is str or kind is Any) and isinstance(value, str):
        return value
    if (kind is float or kind is Any) and is_number:
        return repr(value)
    if kind is int and isinstance(value, int) and is_number:
        return repr(value)
    raise ArgumentError(f"{path}: {key} must be {_WORDS.get(kind, 'a number or a text')}.")


_WORDS = {
    bool: "true or false",
    list: "a list of texts",
    Path: "a text, the path of a file",
    str: "a text",
    float: "a number",
    int: "a whole number",
}


def _from_folder(path: Path, folder: Path) -> str:
    """Return a path as it is seen from a folder, unless it is absolute."""
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)
