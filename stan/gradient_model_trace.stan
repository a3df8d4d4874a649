/* Noise-aware post-processing of a DP-SGD trace, row by row: for reading and for checking.
 *
 * The same posterior as gradient_model.stan, written as one would on a blackboard. Every evaluation visits
 * each step of the trace, so it is slow; use gradient_model.stan for real traces. For each variational
 * parameter d and step t,
 *
 *   noisy_gradient[t, d] ~ normal(sampling_rate * curvature[d] * (phi[t, d] - phi_star[d]), s[d]),
 *   s[d]^2 = noise_std[d]^2 + tau[d]^2,     curvature[d] = log1p_exp(v[d]),
 *
 * with priors  v ~ normal(v_prior_mean, v_prior_sd),  phi_star ~ normal(phi_star_prior_mean, phi_star_prior_sd)
 * and, if use_tau,  tau ~ half-normal(tau_prior_scale).  Each parameter is declared standardised by its prior,
 * and target is the log density of trace, z_v, z_phi_star and z_tau, all constants included.
 */
functions {
#include parts/functions.stan
}
data {
  int<lower=1> D;                        // number of variational parameters
  int<lower=3> num_steps;                // steps in the window, n
  matrix[num_steps, D] phi;              // iterates in the window, burn-in dropped
  matrix[num_steps, D] noisy_gradient;   // noisy summed gradients; row t was computed at row t of phi
  real<lower=0, upper=1> sampling_rate;  // Poisson inclusion probability kappa, must be positive
  vector<lower=0>[D] noise_std;          // sd of the DP noise in a noisy gradient, sigma * C / beta, positive
  vector[D] phi_star_prior_mean;         // prior mean of phi_star, unit of phi
  vector<lower=0>[D] phi_star_prior_sd;  // prior sd of phi_star, unit of phi, positive
  vector[D] v_prior_mean;                // prior mean of v; no unit
  vector<lower=0>[D] v_prior_sd;         // prior sd of v, positive; no unit
  int<lower=0, upper=1> use_tau;         // 1: infer the subsampling noise tau; 0: tau = 0
  vector<lower=0>[use_tau ? D : 0] tau_prior_scale;  // scale of tau's half-normal prior, unit of the gradient
#include parts/guide_data.stan
}
transformed data {
#include parts/guide_sizes.stan
}
parameters {
  vector[D] z_v;                           // v in prior sds from its prior mean
  vector[D] z_phi_star;                    // phi_star in prior sds from its prior mean
  vector<lower=0>[use_tau ? D : 0] z_tau;  // tau over tau_prior_scale
}
transformed parameters {
  vector[D] v = v_prior_mean + v_prior_sd .* z_v;  // unconstrained curvature
  vector<lower=0>[D] curvature = log1p_exp(v);     // a, Hessian of the negative ELBO, unit of gradient / phi
  vector[D] phi_star = phi_star_prior_mean + phi_star_prior_sd .* z_phi_star;  // optimum, unit of phi
  vector<lower=0>[use_tau ? D : 0] tau = tau_prior_scale .* z_tau;  // subsampling sd, unit of the gradient
}
model {
  vector[D] s = total_std(noise_std, tau);
  target += half_std_normal_lpdf(z_tau);
  target += std_normal_lpdf(z_v);
  target += std_normal_lpdf(z_phi_star);
  for (d in 1 : D) {
    target += normal_lpdf(noisy_gradient[ : , d] | sampling_rate * curvature[d] * (phi[ : , d] - phi_star[d]), s[d]);
  }
}
generated quantities {
#include parts/theta.stan
}
