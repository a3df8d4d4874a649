# Predictions from the draws that posterior.R saved, for the tutorial's people (docs/tutorial.md).

library(cmdstanr)
library(posterior)

fit <- as_cmdstan_fit(list.files("draws", pattern = "[.]csv$", full.names = TRUE))
draws <- as_draws_matrix(fit$draws("model_parameters"))

# Columns by name. Stan calls them model_parameters[1], [2], ...; labels.csv says what they are.
labels <- read.csv("stan-program/labels.csv", check.names = FALSE)
colnames(draws) <- labels$label[match(colnames(draws), labels$variable)]

# A row as the schema encodes it: numbers scaled to [0, 1] by their public bounds, 1 for the level that holds.
age <- 60
person <- c(
  "Intercept" = 1,
  "age" = (age - 18) / (100 - 18),
  "education[tertiary]" = 1,
  "city[yes]" = 0
)

# The posterior predictive probability is the mean over draws.
chance <- plogis(draws[, names(person)] %*% person)
cat("P(employed):", mean(chance), "\n")
