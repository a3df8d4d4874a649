# The posterior of a release, drawn in R with cmdstanr.
#
# In the shell, in the folder with the release:
#   nadpvi export release.nc --stan-data data.json --program stan-program
#   Rscript posterior.R
#
# The exported program is the published model: its curvature is diagonal, so that for regressions with correlated or
# one-hot predictors the intervals of single coefficients are too narrow (docs/limits.md). For those see
# read_posterior.R.
#
# Run last with R 4.2.2, cmdstanr 0.8.1 and CmdStan 2.35.0. cmdstanr is not where nadpvi is tested: there, this file
# is parsed, and the files and names in it are held against what `nadpvi export` writes (tests/test_examples.py).

library(cmdstanr)
library(posterior)

model <- cmdstan_model("stan-program/gradient_model.stan")
fit <- model$sample(
  data = "data.json",  # the file itself, not a list: digits and vectors of length one stay as they are
  seed = 1,
  chains = 4,
  parallel_chains = 4,
  iter_warmup = 1000,
  iter_sampling = 1000,
  sig_figs = 17
)
fit$cmdstan_diagnose()

# What each entry is called.
labels <- read.csv("stan-program/labels.csv", check.names = FALSE)
table <- fit$summary(c("model_parameters", "phi_star", "curvature"))
label <- labels$label[match(table$variable, labels$variable)]
print(cbind(label, table), digits = 3)

# For predict.R, and for Posterior.from_cmdstan in Python.
dir.create("draws", showWarnings = FALSE)
fit$save_output_files("draws", basename = "posterior", timestamp = FALSE, random = FALSE)
