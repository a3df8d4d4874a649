"""The contract of a Stan engine, on the embedded one: shapes, seeds, refusals, a clean standard output."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine_checks import assert_short
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.engines import embedded, programs
from nadpvi.engines.base import SamplerSettings, check_seed, check_storage
from nadpvi.engines.data import check_data
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import ArgumentError, EngineError, FileError
from nadpvi.inference.nuts import prepare_nuts, sample_nuts

NORMAL = """
data { int<lower=1> N; vector[N] y; }
parameters { real mu; matrix[2, 3] z; }
model { y ~ normal(mu, 1); mu ~ normal(0, 10); to_vector(z) ~ std_normal(); }
generated quantities { real twice = 2 * mu; }
"""
DATA = {"N": 4, "y": np.array([1.0, 2.0, 3.0, 4.0])}
SMALL = {"chains": 2, "warmup": 200, "draws": 100, "seed": 1}


@pytest.fixture
def write(tmp_path):
    """Write a Stan program and return its path."""

    def write_program(text, name="model.stan"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_program


def test_embedded_draws_have_declared_shapes_and_arviz_names(write):
    result = EmbeddedEngine().sample(write(NORMAL), DATA, **SMALL)
    shapes = {name: value.shape for name, value in result.variables.items()}
    assert shapes == {"mu": (2, 100), "z": (2, 100, 2, 3), "twice": (2, 100)}
    np.testing.assert_array_equal(result.variables["twice"], 2 * result.variables["mu"])
    kinds = {name: (value.shape, value.dtype.kind) for name, value in result.sample_stats.items()}
    assert kinds == {
        "lp": ((2, 100), "f"),
        "acceptance_rate": ((2, 100), "f"),
        "step_size": ((2, 100), "f"),
        "tree_depth": ((2, 100), "i"),
        "n_steps": ((2, 100), "i"),
        "diverging": ((2, 100), "b"),
        "energy": ((2, 100), "f"),
    }
    assert (result.sample_stats["n_steps"] >= 1).all()


def test_one_draw_keeps_its_axes(write):
    result = EmbeddedEngine().sample(write(NORMAL), DATA, chains=1, warmup=1, draws=1, seed=0)
    assert result.variables["mu"].shape == (1, 1)
    assert result.variables["z"].shape == (1, 1, 2, 3)


def test_embedded_recovers_a_known_posterior(write):
    result = EmbeddedEngine().sample(write(NORMAL), DATA, chains=4, warmup=500, draws=2000, seed=2)
    mu = result.variables["mu"]
    precision = 4 + 0.01
    # effective sizes here exceed 2,000, so 5 standard errors are 0.06 sd
    assert abs(mu.mean() - 10.0 / precision) < 0.12 / np.sqrt(precision)
    assert mu.std() == pytest.approx(1 / np.sqrt(precision), rel=0.08)


def test_embedded_is_reproducible_and_seeds_differ(write):
    program, engine = write(NORMAL), EmbeddedEngine()
    first, again, other = (
        engine.sample(program, DATA, **(SMALL | {"seed": seed})) for seed in (5, np.int64(5), 6)
    )
    np.testing.assert_array_equal(first.variables["mu"], again.variables["mu"])
    assert not np.array_equal(first.variables["mu"], other.variables["mu"])
    assert not np.array_equal(first.variables["mu"][0], first.variables["mu"][1])


def test_embedded_gives_the_same_draws_in_threads(write):
    program, engine = write(NORMAL), EmbeddedEngine()

    def draw(seed):
        return engine.sample(program, DATA, **(SMALL | {"seed": seed})).variables["mu"]

    alone = [draw(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, range(8)))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_embedded_leaves_stdout_empty(write, capfd):
    EmbeddedEngine().sample(write(NORMAL), DATA, **SMALL)
    funnel = "parameters { real a; real b; } model { a ~ normal(0, 9); b ~ normal(0, exp(a)); }"
    result = EmbeddedEngine().sample(write(funnel), {}, **SMALL)
    assert result.sample_stats["diverging"].any()
    assert capfd.readouterr() == ("", "")


def test_native_prints_go_to_stderr_and_stdout_comes_back(write, capfd):
    talker = 'parameters { real x; } model { print("from Stan"); x ~ std_normal(); }'
    EmbeddedEngine().sample(write(talker), {}, **SMALL)
    sys.stdout.write("from Python\n")
    out, err = capfd.readouterr()
    assert out == "from Python\n"
    assert "from Stan" in err


def test_comment_about_printing_is_not_a_print():
    assert not embedded._prints({"a": "// print(x)\n/* print\n(y) */ parameters { real blueprint; }"})
    assert embedded._prints({"a": "model { print (1); }"})


# --- what is refused before an engine sees it ---------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, [1.0, np.nan], np.array([[1.0, -np.inf]])])
def test_non_finite_data_is_refused_by_name(write, value):
    with pytest.raises(ArgumentError, match="'y' must be finite"):
        EmbeddedEngine().sample(write(NORMAL), {"N": 1, "y": value}, **SMALL)


@pytest.mark.parametrize("value", ["1", None, {"a": 1}, [1, "2"], 1j, object()])
def test_data_that_is_not_numeric_is_refused_by_name(value):
    with pytest.raises(ArgumentError, match="Stan data 'x' must be numeric"):
        check_data({"x": value})


def test_data_keeps_its_kind_of_number():
    checked = check_data({"i": np.int32(3), "r": 20.0, "b": True, "e": [], "m": np.ones((1, 2), np.uint8)})
    assert checked == {"i": 3, "r": 20.0, "b": 1, "e": [], "m": [[1, 1]]}
    assert type(checked["i"]) is int
    assert type(checked["r"]) is float


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40, 1.5, 1.0, "7", None, True, np.float64(3)])
def test_one_rule_for_seeds(seed):
    with pytest.raises(ArgumentError, match=r"seed must be an integer in \[0, 2\*\*31 - 1\]"):
        check_seed(seed)


@pytest.mark.parametrize("seed", [0, 2**31 - 1, np.int64(3), np.uint8(7)])
def test_accepted_seeds_run(write, seed):
    result = EmbeddedEngine().sample(write(NORMAL), DATA, chains=1, warmup=10, draws=2, seed=seed)
    assert np.isfinite(result.variables["mu"]).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chains", 0),
        ("chains", 2.5),
        ("warmup", 0),
        ("draws", -1),
        ("draws", True),
        ("adapt_delta", 1.0),
        ("adapt_delta", np.nan),
        ("adapt_delta", "0.9"),
        ("max_treedepth", 0),
    ],
)
def test_settings_outside_their_range_are_refused(write, name, value):
    with pytest.raises(ArgumentError, match=f"^{name} must be"):
        EmbeddedEngine().sample(write(NORMAL), DATA, **(SMALL | {name: value}))


@pytest.mark.parametrize(
    ("name", "most"), [("chains", 1000), ("warmup", 10**7), ("draws", 10**7), ("max_treedepth", 30)]
)
def test_counts_that_an_engine_would_wrap_are_refused(write, name, most):
    assert getattr(SamplerSettings(**(SMALL | {name: most})), name) == most
    for value in (most + 1, 2**32, 2**32 + 10, 10**20, 1e300):
        with pytest.raises(ArgumentError, match=f"^{name} must be at most {most} .got [0-9]+..$") as error:
            EmbeddedEngine().sample(write(NORMAL), DATA, **(SMALL | {name: value}))
        assert "\n" not in str(error.value)


def test_more_draws_than_memory_holds_are_refused():
    check_storage(chains=2, draws=2**20, values_per_draw=2**10)
    for draws in (2**20 + 1, 10**7):
        with pytest.raises(ArgumentError, match=rf"^draws must be at most 1048576 with chains=2.*{draws}"):
            check_storage(chains=2, draws=draws, values_per_draw=2**10)
    with pytest.raises(ArgumentError, match=r"^draws must be at most 268435 with chains=1000"):
        SamplerSettings(chains=1000, warmup=1, draws=10**6, seed=1)


class RecordingEngine:
    """Records what it is asked to prepare; it must never be asked to sample."""

    name = "recording"
    version = "0"

    def __init__(self):
        self.prepared = []

    def prepare(self, program_path):
        self.prepared.append(program_path.name)

    def sample(self, *args, **settings):
        raise AssertionError("reached the engine")


def test_storage_of_the_whole_posterior_is_checked_before_the_engine_runs():
    model = gm.make_gradient_model(make_release())
    run = {"engine": RecordingEngine(), "chains": 1, "warmup": 1, "seed": 1}
    with pytest.raises(AssertionError, match="reached the engine"):
        sample_nuts(model, draws=10**7, **run)
    # 10 million draws pass the program-blind check with 26 chains, and are too many for this model
    SamplerSettings(chains=26, warmup=1, draws=10**7, seed=1)
    with pytest.raises(ArgumentError, match=r"^draws must be at most .* with chains=26"):
        sample_nuts(model, draws=10**7, **(run | {"chains": 26}))
    with pytest.raises(ArgumentError, match=r"^draws must be at most 10000000"):
        sample_nuts(model, draws=2**32 + 10, **run)


def test_the_program_of_nuts_can_be_prepared_ahead(tmp_path, monkeypatch):
    engine = RecordingEngine()
    prepare_nuts(engine)
    assert engine.prepared == ["gradient_model.stan"]
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "cache"))
    prepare_nuts(EmbeddedEngine())
    assert not (tmp_path / "cache").exists()


# --- errors of programs -------------------------------------------------------------------------------

MISSING_SEMICOLON = "parameters {\n  real x\n}\nmodel { x ~ std_normal(); }\n"
REJECTS_ALL = 'parameters { real x; } model { reject("no such x"); }'
PROGRAM_ERRORS = [
    (MISSING_SEMICOLON, {}, [r"bad model\.stan", "line 3, column 0", '";"']),
    ("parameters { real x; } model { x ~ normal(0, foo); }", {}, ["line 1, column 45", "foo"]),
    (NORMAL, {"N": 2}, [r"\by\b"]),
    (NORMAL, {"N": 2.0, "y": [1.0, 2.0]}, ["N", "int"]),
    (NORMAL, {"N": 2, "y": [1.0, 2.0, 3.0]}, ["y", "dim"]),
    (REJECTS_ALL, {}, ["no such x"]),
]


@pytest.mark.parametrize(("text", "data", "patterns"), PROGRAM_ERRORS)
def test_embedded_program_errors_are_short(write, text, data, patterns):
    with pytest.raises(EngineError) as error:
        EmbeddedEngine().sample(write(text, "bad model.stan"), data, **SMALL)
    assert_short(error, r"^stanli could not run bad model\.stan", *patterns)


def test_missing_program_is_a_file_error(tmp_path):
    with pytest.raises(FileError, match=r"cannot read the Stan program .*none\.stan"):
        EmbeddedEngine().sample(tmp_path / "none.stan", {}, **SMALL)


@pytest.mark.parametrize("folder", ["my data (v2)+é", "per%cent~", "naïve [brackets]"])
def test_embedded_reads_awkward_paths_and_includes(tmp_path, folder):
    place = tmp_path / folder
    (place / "parts").mkdir(parents=True)
    (place / "parts" / "f.stanfunctions").write_text("real twice(real x) { return 2 * x; }")
    program = place / "a model.stan"
    program.write_text(
        "functions {\n#include parts/f.stanfunctions\n}\n"
        "parameters { real x; } model { x ~ std_normal(); } generated quantities { real y = twice(x); }"
    )
    result = EmbeddedEngine().sample(program, {}, **SMALL)
    np.testing.assert_array_equal(result.variables["y"], 2 * result.variables["x"])
    assert set(programs.read_sources(program)) == {"a model.stan", "parts/f.stanfunctions"}
