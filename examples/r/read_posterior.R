# The posterior that `nadpvi infer` drew, in R: its draws, a table, and predictions for the tutorial's people.
#
# In the shell, in the folder with the release (docs/tutorial.md):
#   nadpvi infer release.nc -o posterior.nc
#   Rscript read_posterior.R
#
# This is the way for regressions: `infer` takes a released curvature for a matrix, where the Stan program that
# posterior.R runs has a diagonal. Packages: ncdf4 and posterior.

library(ncdf4)
library(posterior)

file <- nc_open("posterior.nc")
# R has the last index of a file first: coefficient, draw, chain. The posterior package wants draw, chain, variable.
draws <- aperm(ncvar_get(file, "posterior/coefficients"), c(2, 3, 1))
dimnames(draws)[[3]] <- as.vector(ncvar_get(file, "posterior/coefficient"))
nc_close(file)
draws <- as_draws_array(draws)

print(summarise_draws(draws, "mean", "sd", ~quantile(.x, c(0.05, 0.95)), "rhat", "ess_bulk"), n = 50)

# A row as the schema encodes it: numbers scaled to [0, 1] by their public bounds, 1 for the level that holds.
age <- 60
person <- c(
  "Intercept" = 1,
  "age" = (age - 18) / (100 - 18),
  "education[tertiary]" = 1,
  "city[yes]" = 0
)

# The posterior predictive probability is the mean over draws.
chance <- plogis(as_draws_matrix(draws)[, names(person)] %*% person)
cat("P(employed):", mean(chance), "\n")
