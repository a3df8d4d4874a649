/* Noise-aware post-processing of a DP-SGD trace whose coordinates interact: the curvature is a matrix.
 *
 * In the window after burn-in, with the curvature A symmetric and at least the model's own prior precision,
 *
 *   noisy_gradient[t] ~ multi_normal(sampling_rate * A * (phi[t] - phi_star), diag(s^2)),
 *   s^2 = noise_std^2 + tau^2,      A = diag(prior_precision) + diag(scale) * R * diag(scale),
 *
 * R a correlation matrix. Priors: log(scale^2) ~ normal(log(scale_centre), log_scale_std); R ~
 * lkj_corr(lkj_shape); phi_star ~ normal(phi_star_prior_mean, phi_star_prior_sd); tau ~ half-normal(tau_prior_scale).
 *
 * The trace enters through centred sums that are taken once. phi_star is integrated out of the mean gradient,
 *
 *   g_bar ~ multi_normal(B * (phi_bar - phi_star_prior_mean), B * diag(phi_star_prior_sd^2) * B + diag(s^2) / n),
 *
 * with B = sampling_rate * A, and drawn from its conditional normal afterwards.
 *
 * Meant for a handful of coordinates, where nothing is known of the curvature's pattern. Python's method "dense"
 * samples the same density and knows a schema's pattern besides. Needs Stan 2.29 or later.
 */
data {
  int<lower=1> D;                        // number of variational parameters
  int<lower=3> num_steps;                // steps in the window, n
  vector[D] phi_bar;                     // mean iterate, unit of phi
  vector[D] g_bar;                       // mean noisy gradient, unit of the summed gradient
  matrix[D, D] s_pp;                     // sum of (phi - phi_bar) * (phi - phi_bar)'
  matrix[D, D] s_gp;                     // sum of (noisy_gradient - g_bar) * (phi - phi_bar)'
  vector<lower=0>[D] s_gg;               // sum of (noisy_gradient - g_bar)^2, each coordinate by itself
  real<lower=0, upper=1> sampling_rate;  // Poisson inclusion probability kappa, must be positive
  vector<lower=0>[D] noise_std;          // sd of the DP noise in a noisy gradient, positive
  vector[D] phi_star_prior_mean;         // prior mean of phi_star, unit of phi
  vector<lower=0>[D] phi_star_prior_sd;  // prior sd of phi_star, unit of phi, positive
  int<lower=0, upper=1> use_tau;         // 1: infer the subsampling noise tau; 0: tau = 0
  vector<lower=0>[use_tau ? D : 0] tau_prior_scale;  // scale of tau's half-normal prior, unit of the gradient
  vector<lower=0>[D] prior_precision;    // curvature that the model's own prior adds, unit of gradient / phi
  vector<lower=0>[D] scale_centre;       // median of scale^2, unit of gradient / phi, positive
  real<lower=0> log_scale_std;           // sd of log(scale^2), positive; no unit
  real<lower=0> lkj_shape;               // 1: all correlation matrices alike; larger: entries nearer to 0
}
transformed data {
  vector[D] offset_mean = phi_bar - phi_star_prior_mean;  // prior mean of phi_bar - phi_star
}
parameters {
  vector[D] z_scale;                       // standardised log(scale^2); standard normal prior
  corr_matrix[D] R;                        // associations
  vector<lower=0>[use_tau ? D : 0] z_tau;  // tau over tau_prior_scale; half-normal prior
  vector[D] z_phi_star;                    // standardised phi_star; exactly standard normal
}
transformed parameters {
  vector<lower=0>[use_tau ? D : 0] tau = tau_prior_scale .* z_tau;  // subsampling sd, unit of the gradient
  matrix[D, D] A;                                                  // curvature, unit of gradient / phi
  {
    vector[D] scale = sqrt(scale_centre) .* exp(0.5 * log_scale_std * z_scale);
    A = add_diag(quad_form_diag(R, scale), prior_precision);
  }
}
model {
  matrix[D, D] B = sampling_rate * A;
  vector[D] s = noise_std;
  if (use_tau) {
    s = hypot(noise_std, tau);
    target += std_normal_lpdf(z_tau) + D * log2();
  }
  target += std_normal_lpdf(z_scale);
  target += std_normal_lpdf(z_phi_star);
  target += lkj_corr_lpdf(R | 1);  // uniform; with a power of the determinant, lkj_corr(lkj_shape)
  target += (lkj_shape - 1) * 2 * sum(log(diagonal(cholesky_decompose(R))));
  for (d in 1 : D) {
    vector[D] b = B[ : , d];  // B is symmetric
    real within = s_gg[d] - 2 * s_gp[d] * b + quad_form(s_pp, b);
    target += -(num_steps - 1) * log(s[d]) - 0.5 * within / square(s[d]);
  }
  target += multi_normal_lpdf(g_bar | B * offset_mean,
                              add_diag(tcrossprod(diag_post_multiply(B, phi_star_prior_sd)),
                                       square(s) / num_steps));
}
generated quantities {
  vector[D] phi_star;                   // optimum of the variational problem, unit of phi
  vector[D] curvature = diagonal(A);    // its diagonal, as the other methods report it
  {
    matrix[D, D] B = sampling_rate * A;
    vector[D] s = noise_std;
    matrix[D, D] weighted;   // n * B' * diag(1 / s^2)
    matrix[D, D] factor;     // Cholesky factor of phi_star's conditional precision
    vector[D] mean_part;
    if (use_tau) {
      s = hypot(noise_std, tau);
    }
    weighted = num_steps * diag_post_multiply(B, inv_square(s));
    factor = cholesky_decompose(add_diag(weighted * B, inv_square(phi_star_prior_sd)));
    mean_part = weighted * (B * phi_bar - g_bar) + phi_star_prior_mean ./ square(phi_star_prior_sd);
    phi_star = mdivide_left_tri_low(factor, mean_part) + z_phi_star;
    phi_star = (mdivide_right_tri_low(phi_star', factor))';
  }
}
