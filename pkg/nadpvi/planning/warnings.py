"""What is likely to go wrong with a planned run, in words."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.planning.report import Plan
from nadpvi.planning.wording import shown_names

__all__ = ["plan_warnings"]

# Where a statement becomes worth a line. With a relaxation time of a tenth of the window, the window tells a
# curvature to about sqrt(2 / 10) = 45 %, and an unfinished transient is extrapolated by it.
_SLOW_SHARE = 0.1
_LOST_SHARE = 0.5
_NOISE_RATIO = 3.0
_CLIPPED_SHARE = 0.05
_WASTED_FACTOR = 2.0
_UNEVEN_SHARE = 0.05


def plan_warnings(plan: Plan, *, lost_share: NDArray[np.float64], evenness: float) -> tuple[str, ...]:
    """Return one line for each thing that is likely to go wrong.

    Parameters
    ----------
    plan : Plan
        Complete but for its warnings.
    lost_share : ndarray, shape (K,)
        Which part, in [0, 1], of what the records could take off each parameter's prior variance the noise
        takes away.
    evenness : float
        Share of the prior's draws that an average of the information rests on.
    """
    return tuple(
        line
        for line in (
            *_budget(plan),
            *_averages(evenness),
            *_noise(plan, lost_share=lost_share),
            *_clipping(plan),
            *_steps(plan),
        )
        if line
    )


def _budget(plan: Plan) -> list[str]:
    """Return what is wrong with delta."""
    if plan.delta * plan.num_records < 1.0:
        return []
    return [
        f"delta {plan.delta:g} is not below one over {plan.num_records:,} records, so that the guarantee "
        f"would let a record be published; choose one far below {1 / plan.num_records:.2g}."
    ]


def _averages(evenness: float) -> list[str]:
    """Return what is wrong with averages over the prior."""
    if evenness >= _UNEVEN_SHARE:
        return []
    return [
        f"the prior is wide: {evenness:.1%} of its draws hold nearly all the information, so that tables "
        "differ, and what this plan says of a typical one is far off for others. Choose prior_mean and "
        "prior_sd that expect the outcomes you expect."
    ]


def _steps(plan: Plan) -> list[str]:
    """Return what is wrong with the step size."""
    found = f"the largest step times curvature is {plan.largest_step:.2g}"
    setting = "learning_rate_constant" if plan.is_heuristic else "learning_rate"
    is_suggested = plan.suggested_for is not None and not plan.is_heuristic
    lines = []
    if plan.largest_step >= 2.0:
        # Suggested step sizes get smaller where steps are added.
        remedy = f"take {plan.largest_step:.2g} times the steps, each smaller, or more"
        lines.append(
            f"the iterates are likely to diverge: {found} and must stay below 2; "
            f"{remedy if is_suggested else f'divide {setting} by {plan.largest_step:.2g} or more'}."
        )
    elif plan.largest_step > 1.0:
        remedy = f"a lower {setting} would be steadier, though slower where curvature is small"
        lines.append(
            f"steps overshoot: {found}, above 1; "
            f"{'more steps, each smaller, would be steadier' if is_suggested else remedy}."
        )
    limit = _SLOW_SHARE * plan.num_window_steps
    is_slow = plan.relaxation_steps > limit
    for kind, slow in zip(("locations", "scales"), np.split(is_slow, 2), strict=True):
        if slow.any():
            names = [name for name, chosen in zip(plan.names, slow, strict=True) if chosen]
            lines.append(
                f"{len(names)} of {len(slow)} {kind} are slow: one relaxation time takes more than "
                f"{limit:,.0f} steps, a tenth of the window, which may start before they have arrived: "
                f"{shown_names(names)}. {_slow_remedy(plan)}"
            )
    return lines


def _slow_remedy(plan: Plan) -> str:
    """Return what makes a slow run faster: neither the heuristic nor suggested settings gain from more steps.

    Both make each of more steps so much smaller. Suggested ones are slow only where noise would scatter the
    iterates beyond what the prior finds plausible.
    """
    if plan.is_heuristic:
        return "Raise learning_rate_constant."
    if plan.suggested_for is not None:
        return (
            "The noise keeps their suggested steps small: a larger epsilon or more records allow larger ones."
        )
    return "Raise learning_rate, or learning_rate_factors of these, or take more steps."


def _clipping(plan: Plan) -> list[str]:
    """Return what is wrong with the clip norm."""
    if plan.clipped_share > _CLIPPED_SHARE:
        return [
            "clipping would bend the result, and weaken the signal below what is planned here: "
            f"{plan.clipped_share:.0%} of made-up gradients at the optimum are longer than clip_norm "
            f"{plan.clip_norm:.4g}; raise it or lower preconditioner_u."
        ]
    if plan.clip_norm > _WASTED_FACTOR * plan.typical_norm:
        return [
            f"clip_norm {plan.clip_norm:.4g} is larger than need be: 99 % of made-up gradients at the "
            f"optimum are below {plan.typical_norm:.3g}, and noise is in proportion to it."
        ]
    return []


def _noise(plan: Plan, *, lost_share: NDArray[np.float64]) -> list[str]:
    """Return which parameters the noise drowns, and which others it widens much."""
    is_drowned = lost_share >= _LOST_SHARE
    is_wide = (plan.noise_sd > _NOISE_RATIO * plan.non_private_sd) & ~is_drowned
    lines = []
    if is_drowned.any():
        names = [name for name, drowned in zip(plan.names, is_drowned, strict=True) if drowned]
        lines.append(
            f"{len(names)} of {len(plan.names)} parameters will drown in the noise and return towards their "
            f"prior: {shown_names(names)}. Give a larger epsilon, more records, a lower clip_norm or a "
            "simpler model."
        )
    if is_wide.any():
        names = [name for name, wide in zip(plan.names, is_wide, strict=True) if wide]
        lines.append(
            f"the noise adds more than {_NOISE_RATIO:g} non-private standard deviations to {len(names)} of "
            f"{len(plan.names)} parameters: {shown_names(names)}."
        )
    unsure = [name for name, error in zip(plan.names, plan.scale_error, strict=True) if error > 1.0]
    if unsure:
        lines.append(
            f"the noise drowns the guide's own standard deviation of {len(unsure)} of {len(plan.names)} "
            f"parameters: {shown_names(unsure)}."
        )
    return lines
