"""Coverage, calibration and sharpness of posteriors, from draws and truths of simulated fits. Public side."""

from nadpvi.coverage.calibration import CalibrationTest, calibration_ranks, calibration_test
from nadpvi.coverage.clamping import choose_upper
from nadpvi.coverage.draws import interval_coverage, score_draws, score_many
from nadpvi.coverage.gaussian_optimum import (
    GaussianOptimum,
    PosteriorMoments,
    gaussian_mechanism_optimum,
    non_private_moments,
    simulate_statistics,
)
from nadpvi.coverage.sharpness import ScoreSummary, Sharpness, sharpness, summarise_scores
from nadpvi.coverage.tarp import (
    MIN_REPLICATES,
    CoverageTest,
    coverage_curve,
    coverage_rmse,
    coverage_rmse_bound,
    coverage_test,
)

__all__ = [
    "MIN_REPLICATES",
    "CalibrationTest",
    "CoverageTest",
    "GaussianOptimum",
    "PosteriorMoments",
    "ScoreSummary",
    "Sharpness",
    "calibration_ranks",
    "calibration_test",
    "choose_upper",
    "coverage_curve",
    "coverage_rmse",
    "coverage_rmse_bound",
    "coverage_test",
    "gaussian_mechanism_optimum",
    "interval_coverage",
    "non_private_moments",
    "score_draws",
    "score_many",
    "sharpness",
    "simulate_statistics",
    "summarise_scores",
]
