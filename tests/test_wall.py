"""The wall: nothing on the public side can reach code that sees records."""

import ast
import functools
from pathlib import Path

import pytest

import nadpvi

PACKAGE = Path(nadpvi.__file__).parent

# Code that sees records, or that produces what may be released from them, besides all that lies in private/.
PRIVATE = {
    "nadpvi.private.records",
    "nadpvi.private.dpsgd",
    "nadpvi.private.dpvi",
    "nadpvi.private.curator",
    "nadpvi.baselines.non_private",
    "nadpvi.baselines.dpvim_run",
    "nadpvi.baselines.dpvim_simulated",
    "nadpvi.baselines.sufficient_statistics.records",
}

# Modules that drive both sides, and the package's own front door, which only lists names.
BOTH_SIDES = {
    "nadpvi",
    "nadpvi.__main__",
    "nadpvi.demo",
    "nadpvi.experiments.api",
    "nadpvi.experiments.backend_dask",
    "nadpvi.experiments.backend_joblib",
    "nadpvi.experiments.blocks",
    "nadpvi.experiments.configuration",
    "nadpvi.experiments.figures",
    "nadpvi.experiments.finding",
    "nadpvi.experiments.fits",
    "nadpvi.experiments.methods",
    "nadpvi.experiments.optimum",
    "nadpvi.experiments.predictions",
    "nadpvi.experiments.runner",
    "nadpvi.experiments.sources",
    "nadpvi.experiments.tables",
    "nadpvi.experiments.work",
    "nadpvi.tuning",
    "nadpvi.tuning.api",
    "nadpvi.tuning.trial",
    "nadpvi.planning.plan",
    "nadpvi.planning.timing",
    "nadpvi.baselines",
    "nadpvi.cli.app",
    "nadpvi.cli.coverage",
    "nadpvi.cli.demo",
    "nadpvi.cli.plan",
    "nadpvi.cli.resume",
    "nadpvi.cli.run",
}

# Named one by one, so that a renamed or deleted module cannot silently leave the test.
PUBLIC = {
    "nadpvi.cli.described",
    "nadpvi.cli.files",
    "nadpvi.cli.groups",
    "nadpvi.cli.predict",
    "nadpvi.cli.run_file",
    "nadpvi.cli.wording",
    "nadpvi.planning.clipping",
    "nadpvi.planning.outcomes",
    "nadpvi.planning.pace",
    "nadpvi.planning.predictive",
    "nadpvi.planning.published",
    "nadpvi.planning.resolve",
    "nadpvi.planning.rounding",
    "nadpvi.planning.share",
    "nadpvi.planning.suggestion",
    "nadpvi.planning.wording",
    "nadpvi.arviz_bridge",
    "nadpvi.folders",
    "nadpvi.bijectors",
    "nadpvi.callbacks",
    "nadpvi.canvas",
    "nadpvi.shown_figure",
    "nadpvi.clipping",
    "nadpvi.clipping.api",
    "nadpvi.clipping.inversion",
    "nadpvi.clipping.records",
    "nadpvi.clipping.response",
    "nadpvi.clipping.stationary",
    "nadpvi.column_rules",
    "nadpvi.coverage",
    "nadpvi.coverage.draws",
    "nadpvi.coverage.expected_optimum",
    "nadpvi.coverage.gaussian_optimum",
    "nadpvi.coverage.tarp",
    "nadpvi.design",
    "nadpvi.factors",
    "nadpvi.formula",
    "nadpvi.formula_calls",
    "nadpvi.level_columns",
    "nadpvi.terms",
    "nadpvi.gradient_model.certain_precision",
    "nadpvi.gradient_model.running",
    "nadpvi.gradient_model.dense.density",
    "nadpvi.gradient_model.dense.known",
    "nadpvi.gradient_model.dense.setup",
    "nadpvi.inference.dense",
    "nadpvi.inference.file_checks",
    "nadpvi.inference.dense_block",
    "nadpvi.inference.dense_stan",
    "nadpvi.inference.hamiltonian",
    "nadpvi.guides.registry",
    "nadpvi.models.custom",
    "nadpvi.models.registry",
    "nadpvi.supports",
    "nadpvi.attempts",
    "nadpvi.planning.expectations",
    "nadpvi.planning.curvature",
    "nadpvi.made_up",
    "nadpvi.mechanism",
    "nadpvi.settings",
    "nadpvi.baselines.conjugate",
    "nadpvi.baselines.dpvim",
    "nadpvi.baselines.dpvim_trace",
    "nadpvi.baselines.last_iterate",
    "nadpvi.description",
    "nadpvi.containers.array_labels",
    "nadpvi.containers.array_numbers",
    "nadpvi.containers.arrays",
    "nadpvi.arrow_tables",
    "nadpvi.containers.checksum",
    "nadpvi.containers.heaps",
    "nadpvi.containers.posterior_checks",
    "nadpvi.containers.promise_checks",
    "nadpvi.containers.release_checks",
    "nadpvi.containers.release_file",
    "nadpvi.containers.release_parts",
    "nadpvi.containers.trace_checks",
    "nadpvi.containers.posterior",
    "nadpvi.containers.release",
    "nadpvi.containers.storage",
    "nadpvi.diagnostics",
    "nadpvi.diagnostics.burn_in",
    "nadpvi.diagnostics.chains",
    "nadpvi.diagnostics.checks",
    "nadpvi.diagnostics.dynamics",
    "nadpvi.diagnostics.findings",
    "nadpvi.diagnostics.gradient_checks",
    "nadpvi.diagnostics.limits",
    "nadpvi.diagnostics.release",
    "nadpvi.diagnostics.released",
    "nadpvi.diagnostics.released_curvature",
    "nadpvi.diagnostics.run_checks",
    "nadpvi.diagnostics.schedule",
    "nadpvi.diagnostics.window",
    "nadpvi.encoding",
    "nadpvi.export",
    "nadpvi.inference.api",
    "nadpvi.inference.curvature_prior",
    "nadpvi.cli.doctor",
    "nadpvi.cli.export",
    "nadpvi.cli.schema",
    "nadpvi.cli.summary",
    "nadpvi.inference.draws",
    "nadpvi.inference.exact",
    "nadpvi.inference.from_cmdstan",
    "nadpvi.inference.groups",
    "nadpvi.inference.health",
    "nadpvi.containers.variables",
    "nadpvi.inference.laplace",
    "nadpvi.inference.methods",
    "nadpvi.inference.nuts",
    "nadpvi.inference.stan_data",
    "nadpvi.public_term",
    "nadpvi.uncertainty",
    "nadpvi.markup",
    "nadpvi.prior_comparison",
    "nadpvi.figures",
    "nadpvi.figures.calibration",
    "nadpvi.figures.forest",
    "nadpvi.figures.gradients",
    "nadpvi.figures.prior",
    "nadpvi.figures.rivals",
    "nadpvi.figures.style",
    "nadpvi.figures.trace",
    "nadpvi.containers.posterior_like",
    "nadpvi.containers.posterior_views",
    "nadpvi.report",
    "nadpvi.report.calibration",
    "nadpvi.report.guarantee",
    "nadpvi.report.health",
    "nadpvi.report.page",
    "nadpvi.report.parameters",
    "nadpvi.report.parts",
    "nadpvi.report.predictions",
    "nadpvi.report.prior",
    "nadpvi.report.provenance",
    "nadpvi.report.trace",
    "nadpvi.cli.report",
    "nadpvi.predictive",
    "nadpvi.row_columns",
    "nadpvi.schema",
    "nadpvi.skeleton",
    "nadpvi.scores",
    "nadpvi.tables",
    "nadpvi.theory",
    "nadpvi.theory.curvature",
    "nadpvi.theory.iterates",
    "nadpvi.theory.learning_rate",
    "nadpvi.theory.subsampling",
}


def module_name(path):
    parts = ("nadpvi", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}
# Where a module lies decides; the names above only keep a folder from being renamed away.
PRIVATE |= {name for name in MODULES if name.startswith("nadpvi.private.")}


@functools.cache
def imported(name):
    """Modules of ours that `name` imports anywhere in its text, functions and type checks included."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in found if module in MODULES}


@functools.cache
def reachable(name):
    seen, todo = set(), [name]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            todo.extend(imported(current))
    return seen - {name}


def test_every_module_is_accounted_for():
    assert set(MODULES) >= PRIVATE | BOTH_SIDES | PUBLIC


@pytest.mark.parametrize("name", sorted(set(MODULES) - PRIVATE - BOTH_SIDES))
def test_no_way_to_the_records(name):
    assert not reachable(name) & (PRIVATE | BOTH_SIDES)


def test_the_check_can_fail():
    assert "nadpvi.private.records" in reachable("nadpvi.private.curator")
    assert reachable("nadpvi.demo") & PRIVATE


def test_there_are_no_import_cycles():
    loops = {name for name in MODULES if any(name in reachable(other) for other in reachable(name))}
    assert not loops - {"nadpvi"}


FORBIDDEN_NAMES = {"__import__", "eval", "exec", "compile"}
FORBIDDEN_ATTRIBUTES = {"import_module", "resolve_name", "get_objects", "__import__", "__loader__"}
FORBIDDEN_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "gc", "pkgutil", "runpy"}

# Exemptions, with their reasons: ArviZ's half-import is dropped from sys.modules before a second try;
# joblib's processes carry out tasks, and its reader of pickles is not touched.
EXEMPT = {"nadpvi.arviz_bridge": {"modules"}, "nadpvi.experiments.backend_joblib": {"joblib"}}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_dynamic_imports_or_pickles(name):
    tree = ast.parse(MODULES[name].read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not names & FORBIDDEN_NAMES
    assert not attributes & (FORBIDDEN_ATTRIBUTES | {"modules"}) - EXEMPT.get(name, set())
    roots = {module.split(".")[0] for module in imported_anywhere(tree)}
    assert not roots & FORBIDDEN_MODULES - EXEMPT.get(name, set())
    assert "allow_pickle" not in {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}


@pytest.mark.parametrize("name", sorted(set(MODULES) - PRIVATE - BOTH_SIDES))
def test_no_public_code_names_a_private_module_in_a_string(name):
    tree = ast.parse(MODULES[name].read_text())
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            assert not any(private in node.value for private in PRIVATE)


def imported_anywhere(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found
