"""The privacy audit of ``tests/test_audit.py`` at full size: lower bounds on epsilon, sound code and broken.

Neighbouring data sets, statistics and faults are those of the tests; how a bound is made is in
``tests/audit_bounds.py``. Nothing is seeded: noise and sampling come from the operating system, as in a real
release, so that numbers differ a little from run to run. The results go to ``benchmarks/results/audit.md``
and ``audit.json``.
"""

import argparse
import contextlib
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from _shared import RESULTS, machine, write_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from audit_bounds import Bound
from audit_mutants import MUTANTS
from audit_pairs import ALONE, CROWD, OPPOSED, PERSON, Claim, Pair, audit

MISS = 1e-3
CLAIM = Claim(epsilon=1.0, delta=1e-3, num_steps=10, sampling_rate=0.1)
SHORT = replace(CLAIM, delta=1e-2, num_steps=4, sampling_rate=0.25)
PERSONS = replace(CLAIM, person_rows=2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One audit: a claim, where it is attacked, and with which fault, if any."""

    name: str
    claim: Claim
    pair: Pair
    mutant: str | None = None
    through_release: bool = False
    share: float = 1.0


SOUND = (
    Case(name="one record or two", claim=CLAIM, pair=ALONE),
    Case(name="100 records or 101", claim=CLAIM, pair=CROWD),
    Case(name="20 records or a 21st against them", claim=CLAIM, pair=OPPOSED),
    Case(name="delta 1e-2", claim=replace(CLAIM, delta=1e-2), pair=ALONE),
    Case(name="delta 1e-5", claim=replace(CLAIM, delta=1e-5), pair=ALONE),
    Case(name="one step of all records", claim=replace(CLAIM, num_steps=1, sampling_rate=1.0), pair=ALONE),
    Case(name="one record or its opposite", claim=replace(CLAIM, relation="replace_one"), pair=ALONE),
    Case(name="one person or two", claim=PERSONS, pair=PERSON),
    Case(name="whole releases", claim=SHORT, pair=CROWD, through_release=True, share=0.1),
)
BROKEN = (
    *(
        Case(name=name, claim=PERSONS if mutant.pair == PERSON else CLAIM, pair=mutant.pair, mutant=name)
        for name, mutant in MUTANTS.items()
    ),
    Case(
        name="whole releases, noise on the mean",
        claim=SHORT,
        pair=CROWD,
        mutant="noise on the mean (expected batch)",
        through_release=True,
        share=0.1,
    ),
)


def examine(case: Case, runs: int) -> tuple[Bound, int, float]:
    """Return the bound of one case, the runs made on each data set, and the seconds they took."""
    runs, start = max(200, int(case.share * runs)), time.perf_counter()
    fault = contextlib.nullcontext() if case.mutant is None else MUTANTS[case.mutant].apply()
    with fault:
        bound = audit(
            case.pair, case.claim, runs=runs, miss_probability=MISS, through_release=case.through_release
        )
    return bound, runs, time.perf_counter() - start


def table(cases: tuple[Case, ...], results: list[tuple[Bound, int, float]]) -> list[str]:
    """Return rows of Markdown."""
    lines = [
        "| | claimed epsilon | empirical lower bound | delta | T | rate | runs | most telling event |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, (bound, runs, _) in zip(cases, results, strict=True):
        claim = case.claim
        lines.append(
            f"| {case.name} | {claim.epsilon:g} | {bound.epsilon:.2f} | {claim.delta:g} | {claim.num_steps} "
            f"| {claim.sampling_rate:g} | 2 x {runs:,} | {bound.statistic} ({bound.relation}): "
            f"{bound.hits:,} against {bound.false_hits:,} of {bound.fresh_runs:,} |"
        )
    return lines


def report(results: list[tuple[Bound, int, float]], *, command: str) -> str:
    """Return both tables with what a reader must know to judge them."""
    facts = ", ".join(f"{key} {value}" for key, value in machine().items())
    lines = [
        "# Privacy audit",
        "",
        f"`{command}` ({facts}).",
        "",
        f"Each bound by itself holds with confidence {1 - MISS:.1%}: Clopper-Pearson limits of one event, "
        "chosen on a quarter of the runs and counted on the others. With n of these, no bound can exceed "
        f"about log(n / log(2 / {MISS:g})).",
        "",
        "## The code as it is: every bound must stay below the claim",
        "",
        *table(SOUND, results[: len(SOUND)]),
        "",
        "## The code with one deliberate fault: every bound must exceed the claim",
        "",
        *table(BROKEN, results[len(SOUND) :]),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run all cases, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="runs on each of the two data sets")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    cases, spawn = SOUND + BROKEN, multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.workers, mp_context=spawn) as pool:
        results = list(pool.map(examine, cases, [arguments.runs] * len(cases)))
    text = report(results, command=f"python benchmarks/audit.py --runs {arguments.runs}")
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit.md").write_text(text)
    rows = [
        {"case": asdict(case), "runs": runs, "seconds": round(seconds, 1), "bound": asdict(bound)}
        for case, (bound, runs, seconds) in zip(cases, results, strict=True)
    ]
    write_result("audit", {"machine": machine(), "cases": rows})
    wrong = [
        case.name
        for case, (bound, *_) in zip(cases, results, strict=True)
        if (bound.epsilon > case.claim.epsilon) != (case.mutant is not None)
    ]
    if wrong:
        sys.exit(f"not as it must be: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
