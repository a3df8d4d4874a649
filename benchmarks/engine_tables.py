"""The engine benchmark's tables, written from its result."""

from pathlib import Path
from typing import Any

from _shared import RESULTS

__all__ = ["write_tables"]

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
START, END = "<!-- tables: start -->", "<!-- tables: end -->"

NAMES = {
    "bare": "bare products, whole batch",
    "bare, blocks": "bare products, blocks of 512 rows",
    "simulation": "nadpvi, simulation",
    "real": "nadpvi, real step",
    "jax, float32": "JAX, float32",
    "jax, float64": "JAX, float64",
    "opacus, hooks": "Opacus, GradSampleModule",
    "opacus, vmap": "Opacus optimizer, torch.func",
}
HEADER = (
    "| | ms a step | over bare | over nadpvi's simulation | peak MB | of which before the records |\n"
    "|---|---|---|---|---|---|"
)


def tables(result: dict[str, Any]) -> str:
    """Return one table a case and number of cores, in Markdown."""
    parts = []
    for cores, cases in result["runs, by cores"].items():
        for case in cases.values():
            sizes = case["sizes"]
            loads = " and ".join(f"{load:.1f}" for load in case["load average before and after"])
            parts.append(
                f"**{case['title']}**: N = {sizes['N']:,}, K = {sizes['K']}, D = {sizes['D']}, "
                f"S = {sizes['S']}, sampling rate {sizes['sampling_rate']:g}; {cores} core"
                f"{'' if cores == '1' else 's'}, load average {loads}.\n\n{HEADER}\n" + rows(case["tools"])
            )
    return "\n\n".join(parts) + "\n"


def rows(tools: dict[str, Any]) -> str:
    """Return the lines of one table."""
    ours = tools.get("simulation")
    lines = []
    for tool, facts in tools.items():
        if isinstance(facts, str):
            lines.append(f"| {NAMES[tool]} | {facts} | | | | |")
            continue
        against = "" if not isinstance(ours, dict) else f"{facts['ms a step'] / ours['ms a step']:.2f}"
        lines.append(
            f"| {NAMES[tool]} | {facts['ms a step']:.3f} | {facts['over bare']:.2f} | {against} "
            f"| {facts['peak MB']:.0f} | {facts['peak MB after imports']:.0f} |"
        )
    return "\n".join(lines)


def write_tables(result: dict[str, Any], name: str) -> None:
    """Write the tables beside the result and, for the benchmark's own result, into the docs."""
    text = tables(result)
    (RESULTS / f"{name}.md").write_text(text)
    if name == "engine" and PAGE.exists():
        page = PAGE.read_text()
        head, tail = page[: page.index(START) + len(START)], page[page.index(END) :]
        PAGE.write_text(f"{head}\n\n{text}\n{tail}")
