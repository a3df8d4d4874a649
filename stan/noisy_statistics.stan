/* Parameters of a conjugate model given sufficient statistics that were released once with Gaussian noise.
 *
 * Each of num_records records adds statistics with mean m(theta) and covariance V(theta) to the sums. With the
 * true sums integrated out by the central limit theorem, the J noisy sums are
 *
 *   noisy ~ multi_normal(N m, N V + noise_std^2 I).
 *
 * family 1: counts of the first J of C levels, m = p[1:J], V = diag(m) - m m', p ~ Dirichlet(concentration).
 * family 2: the sum of exponential outcomes, in units of bound, with a value from bound on counted as bound, and
 *           num_records minus it if J = 2.  rate ~ gamma(prior_shape, prior_rate), x = rate * bound,
 *           m = (1 - exp(-x)) / x,  second moment 2 / x^2 - 2 exp(-x) (1 + 1 / x) / x.
 *
 * N is num_records where it is public; else it has a flat prior on N > 0. target holds all constants.
 *
 * Needs Stan 2.29 or later. The Gibbs sampler of nadpvi.baselines.sufficient_statistics draws from the same
 * model, but for its theta given the true sums, which is exact where this is normal.
 */
data {
  int<lower=1, upper=2> family;          // 1: counts; 2: exponential outcomes
  int<lower=1> J;                        // number of released sums
  int<lower=2> C;                        // number of levels; 2 for family 2
  vector[J] noisy;                       // noisy sums, in records
  real<lower=0> noise_std;               // sd of the noise in each sum, in records, positive
  int<lower=0, upper=1> is_count_public; // 1: num_records is N; 0: it is a rough guess, used as a scale
  real<lower=0> num_records;             // N or a guess of it, positive
  vector<lower=0>[C] concentration;      // Dirichlet prior, positive; not used by family 2
  real<lower=0> bound;                   // upper bound of an outcome, its unit, positive; not used by family 1
  real<lower=0> prior_shape;             // shape of the rate's prior, positive; not used by family 1
  real<lower=0> prior_rate;              // rate of the rate's prior, unit of the outcome; not used by family 1
}
transformed data {
  int K = family == 1 ? C - 1 : 1;
  vector[C - 1] log_left;   // log of the number of levels after each but the last
  vector[C - 1] rest;       // concentration of all levels after each but the last
  for (k in 1:(C - 1)) {
    log_left[k] = log(C - k);
    rest[k] = sum(concentration[(k + 1):C]);
  }
}
parameters {
  vector[K] theta;  // family 1: logits of stick breaking, 0 at equal shares; family 2: log rate
  array[is_count_public ? 0 : 1] real<lower=0> relative_count;  // N over its guess; flat prior
}
transformed parameters {
  real count = num_records * (is_count_public ? 1 : relative_count[1]);  // N, records
  vector[family == 1 ? C : 0] probabilities = rep_vector(1, family == 1 ? C : 0);        // of the levels
  array[family == 2 ? 1 : 0] real rate = rep_array(exp(theta[1]), family == 2 ? 1 : 0);  // of the outcomes
  if (family == 1) {
    real log_stick = 0;  // of what the levels so far have left
    for (k in 1:(C - 1)) {
      probabilities[k] = exp(log_stick + log_inv_logit(theta[k] - log_left[k]));
      log_stick += log1m_inv_logit(theta[k] - log_left[k]);
    }
    probabilities[C] = exp(log_stick);
  }
}
model {
  vector[J] mean_one;  // of one record
  matrix[J, J] covariance;
  if (family == 1) {
    mean_one = probabilities[1:J];
    covariance = diag_matrix(mean_one) - mean_one * mean_one';
    // A Dirichlet's sticks are independent beta variables; their logits have this density.
    for (k in 1:(C - 1)) {
      target += concentration[k] * log_inv_logit(theta[k] - log_left[k])
                + rest[k] * log1m_inv_logit(theta[k] - log_left[k]) - lbeta(concentration[k], rest[k]);
    }
  } else {
    real x = rate[1] * bound;
    real first = -expm1(-x) / x;
    real variance = 2 * (first - exp(-x)) / x - square(first);
    row_vector[2] sign = [1, -1];
    mean_one[1] = first;
    if (J == 2) {
      mean_one[2] = 1 - first;
    }
    covariance = variance * (sign[1:J]' * sign[1:J]);
    target += gamma_lpdf(rate[1] | prior_shape, prior_rate) + theta[1];
  }
  target += multi_normal_lpdf(noisy | count * mean_one, add_diag(count * covariance, square(noise_std)));
}
