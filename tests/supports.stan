// Every support of nadpvi.supports with a flat target: its log density is Stan's own log-Jacobian.
parameters {
  real number;                            // any
  real<lower=0> scale;                    // > 0
  vector<lower=0, upper=1>[2] shares;     // in (0, 1)
  ordered[3] cuts;                        // increasing
  simplex[4] weights;                     // sums to 1
  array[2] simplex[3] rows;               // each sums to 1
  cov_matrix[3] spread;                   // symmetric positive definite
}
