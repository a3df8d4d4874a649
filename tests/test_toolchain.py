"""Finding Stan engines, and building programs with CmdStan's make."""

import logging
import re
import sys
from pathlib import Path

import pytest
from engine_checks import assert_short

from nadpvi.engines import discover, programs, toolchain
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import ArgumentError, EngineError
from nadpvi.folders import cache_dir


@pytest.fixture
def write(tmp_path):
    """Write a Stan program and return its path."""

    def write_program(text, name="model.stan"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_program


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def without_cmdstan(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CMDSTAN", raising=False)


def test_shipped_programs_are_found_and_unknown_ones_listed():
    path = programs.program_path("gradient_model")
    assert path.name == "gradient_model.stan"
    assert "parameters {" in path.read_text(encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"known: .*gradient_model, .*gradient_model_trace"):
        programs.program_path("gradient")


def test_cache_key_follows_content_and_toolchain():
    sources = {"a.stan": "x", "b.stan": "y"}
    key = programs.content_key(sources, toolchain="2.37")
    assert key == programs.content_key(dict(reversed(sources.items())), toolchain="2.37")
    others = [
        programs.content_key(sources | {"b.stan": "z"}, toolchain="2.37"),
        programs.content_key(sources, toolchain="2.38"),
        programs.content_key({"a.stan": "xb.stan", "b.stan": "y"}, toolchain="2.37"),
    ]
    assert len({key, *others}) == 4


def test_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("NADPVI_CACHE_DIR", "~/mine")
    assert cache_dir() == Path.home() / "mine"
    monkeypatch.delenv("NADPVI_CACHE_DIR")
    assert cache_dir().name == "nadpvi"


# --- finding engines ----------------------------------------------------------------------------------


def assert_one_line(message, *parts):
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_missing_cmdstan_is_one_line_with_the_remedy(without_cmdstan, caplog, capfd):
    with caplog.at_level(logging.DEBUG), pytest.raises(EngineError) as error:
        discover.find_engine("cmdstan")
    assert_one_line(str(error.value), "CmdStan is not installed", "install_cmdstan", "engine='stanli'")
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")


def test_wrong_cmdstan_variable_is_named(without_cmdstan, monkeypatch):
    monkeypatch.setenv("CMDSTAN", "/nonexistent")
    with pytest.raises(EngineError) as error:
        discover.find_engine("cmdstan")
    assert_one_line(str(error.value), "CMDSTAN names /nonexistent", "engine='stanli'")
    assert discover.find_engine("auto").name == "stanli"
    statuses = {status.name: status for status in discover.describe_engines()}
    assert statuses["stanli"].is_found
    assert statuses["stanli"].version.startswith("0.24")
    assert not statuses["cmdstan"].is_found
    assert "/nonexistent" in statuses["cmdstan"].detail


def make_cmdstan(folder, version="2.36.0"):
    """Create the files by which an installation is recognised."""
    for part in ("bin/stanc", "src/cmdstan/main.cpp"):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()
    (folder / "makefile").write_text(f"CMDSTAN_VERSION := {version}\n")
    return folder


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with nothing but a make and a g++."""
    place = tmp_path / "tools"
    place.mkdir()
    for name in ("make", "g++"):
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    for name in ("MAKE", "CXX"):
        monkeypatch.delenv(name, raising=False)
    return place


def test_newest_cmdstan_is_taken(without_cmdstan, tools, tmp_path):
    for version in ("2.9.0", "2.36.0", "2.37.0-rc1", "2.35.0"):
        make_cmdstan(tmp_path / ".cmdstan" / f"cmdstan-{version}", version)
    assert toolchain.find_cmdstan().version == "2.37.0-rc1"
    make_cmdstan(tmp_path / ".cmdstan" / "cmdstan-2.37.0", "2.37.0")
    found = toolchain.find_cmdstan()
    assert (found.path.name, found.version) == ("cmdstan-2.37.0", "2.37.0")


@pytest.mark.parametrize("missing", ["makefile", "bin/stanc", "src/cmdstan/main.cpp"])
def test_incomplete_cmdstan_is_refused(without_cmdstan, tools, tmp_path, monkeypatch, missing):
    folder = make_cmdstan(tmp_path / "stan")
    (folder / missing).unlink()
    monkeypatch.setenv("CMDSTAN", str(folder))
    with pytest.raises(EngineError) as error:
        discover.find_engine("cmdstan")
    assert_one_line(str(error.value), f"incomplete ({missing} is missing)")


@pytest.mark.parametrize(("tool", "named"), [("make", "'make'"), ("g++", "C++ compiler")])
def test_missing_build_tool_is_found_up_front(without_cmdstan, tools, tmp_path, monkeypatch, tool, named):
    monkeypatch.setenv("CMDSTAN", str(make_cmdstan(tmp_path / "stan")))
    (tools / tool).unlink()
    with pytest.raises(EngineError) as error:
        discover.find_engine("cmdstan")
    assert_one_line(str(error.value), named, "engine='stanli'")


def test_cache_that_cannot_be_written_to_is_found_up_front(without_cmdstan, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("CMDSTAN", str(make_cmdstan(tmp_path / "stan")))
    (tmp_path / "file").touch()
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(EngineError) as error:
        discover.find_engine("cmdstan")
    assert_one_line(str(error.value), "cannot be written to", "NADPVI_CACHE_DIR")


def test_missing_stanli_is_one_line(without_cmdstan, monkeypatch):
    monkeypatch.setitem(sys.modules, "stanli", None)
    with pytest.raises(EngineError) as error:
        discover.find_engine("stanli")
    assert_one_line(str(error.value), "stanli cannot be imported", "pip install")
    with pytest.raises(EngineError, match=r"no Stan engine is usable.*CmdStan is not installed.*stanli"):
        discover.find_engine()
    assert [status.is_found for status in discover.describe_engines()] == [False, False]


def test_other_stanli_version_is_refused(monkeypatch):
    monkeypatch.setattr("stanli.__version__", "0.25.1")
    with pytest.raises(EngineError, match=r"stanli 0\.25\.1 is not supported"):
        EmbeddedEngine()


def test_unknown_engine_lists_the_known_ones():
    with pytest.raises(ArgumentError, match="'auto', 'cmdstan', 'stanli'"):
        discover.find_engine("pystan")


# --- building, with stand-ins for make and stanc ------------------------------------------------------


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """An installation whose make copies the program, counting calls; stanc refuses the word `broken`."""
    folder = make_cmdstan(tmp_path / "stan")
    (folder / "bin" / "stanc").write_text(
        '#!/bin/sh\nfor last; do :; done\nif grep -q broken "$last"; then\n'
        "echo \"Syntax error in 'bad.stan', line 3, column 7, parsing error:\" >&2\n"
        'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "note $i" >&2; done\n'
        "exit 1; fi\n"
    )
    make = tmp_path / "make"
    make.write_text(
        f'#!/bin/sh\nfor last; do :; done\necho "$last" >> "{tmp_path}/calls"\n'
        'if grep -q uncompilable "$last.stan"; then\n'
        'echo g++ -c x; echo "x.hpp:1:2: error: bad type" >&2; exit 2; fi\n'
        'cp "$last.stan" "$last"\n'
    )
    for script in (folder / "bin" / "stanc", make):
        script.chmod(0o755)
    monkeypatch.setenv("MAKE", str(make))
    return toolchain.CmdStanInstallation(path=folder, version="2.36.0")


def test_program_is_built_once_and_again_when_it_changes(builder, write, tmp_path):
    program = write("one", "my model (v2)+é.stan")
    first = toolchain.build_program(program, builder)
    assert first.read_text() == "one"
    assert toolchain.build_program(program, builder) == first
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    program.write_text("two")
    second = toolchain.build_program(program, builder)
    assert second != first
    assert second.read_text() == "two"
    assert not list(second.parent.glob("*.part"))


def test_make_gets_a_plain_path_whatever_the_folders_are(builder, write, tmp_path, monkeypatch):
    awkward = tmp_path / "tmp (é) x"
    awkward.mkdir()
    monkeypatch.setenv("TMPDIR", str(awkward))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "cache é (2)"))
    executable = toolchain.build_program(write("one", "a b.stan"), builder)
    assert executable.read_text() == "one"
    (target,) = (tmp_path / "calls").read_text().splitlines()
    assert re.fullmatch(r"[A-Za-z0-9_./-]+", target)
    assert not Path(target).exists()


@pytest.mark.parametrize(
    ("text", "pattern"), [("broken", "line 3, column 7"), ("uncompilable", r"x\.hpp:1:2: error")]
)
def test_build_errors_are_short_and_their_log_is_kept(builder, write, text, pattern):
    with pytest.raises(EngineError) as error:
        toolchain.build_program(write(text, "bad.stan"), builder)
    assert_short(error, r"^bad\.stan does not compile", pattern)
    log = Path(re.search("full log: (.*)", str(error.value)).group(1))
    assert "note 20" in log.read_text() or "g++ -c x" in log.read_text()


@pytest.mark.parametrize("text", ["broken", "uncompilable"])
def test_cmdstan_that_cannot_build_names_the_engine_that_needs_no_building(builder, write, text):
    engine = CmdStanEngine(installation=builder)
    with pytest.raises(EngineError) as error:
        engine.prepare(write(text, "bad.stan"))
    assert_short(error, "engine='stanli'", "--engine stanli")


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 0\n", "\x7fELF of another machine"])
@pytest.mark.parametrize("tool", ["stanc", "make"])
def test_tool_that_does_not_start_is_one_line(builder, write, tmp_path, tool, content):
    path = tmp_path / "make" if tool == "make" else builder.path / "bin" / "stanc"
    path.write_text(content)
    path.chmod(0o644 if content.startswith("#!") else 0o755)
    with pytest.raises(EngineError) as error:
        toolchain.build_program(write("one", "good.stan"), builder)
    reason = "Permission denied" if content.startswith("#!") else "Exec format error"
    assert_one_line(
        str(error.value),
        "good.stan cannot be compiled",
        f"{path} does not start ({reason})",
        "--engine stanli",
    )


def test_prepared_program_is_not_built_again(builder, write, tmp_path):
    program = write("#!/bin/sh\nexit 3\n")
    engine = CmdStanEngine(installation=builder)
    engine.prepare(program)
    (executable,) = (tmp_path / "cache" / "programs").glob("*/program")
    executable.chmod(0o755)
    for _ in range(2):
        with pytest.raises(EngineError, match="chain 1 ended with exit code 3"):
            engine.sample(program, {}, chains=1, warmup=1, draws=1, seed=1)
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_cache_that_fails_while_publishing_is_explained(builder, write, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "programs").touch()
    with pytest.raises(EngineError, match=r"cannot write to the program cache.*NADPVI_CACHE_DIR"):
        toolchain.build_program(write("one"), builder)
