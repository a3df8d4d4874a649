/* Noise-aware post-processing of a DP-SGD trace, written on the iterates (eq. 22): for checking.
 *
 * The same posterior as gradient_model_trace.stan. A step of DP-SGD is
 * phi[t + 1] = phi[t] - learning_rate * noisy_gradient[t], so that for each variational parameter d
 *
 *   phi[t + 1, d] ~ normal(phi[t, d] - pull[d] * (phi[t, d] - phi_star[d]), learning_rate[d] * s[d]),
 *   pull[d] = learning_rate[d] * sampling_rate * curvature[d],
 *   s[d]^2 = noise_std[d]^2 + tau[d]^2,     curvature[d] = log1p_exp(v[d]),
 *
 * with the priors of gradient_model_trace.stan. target is the log density of the iterates given the first one
 * and of z_v, z_phi_star and z_tau, all constants included: that of the trace program, less
 * num_steps * sum(log(learning_rate)). It holds only where every step was as above: not for a run whose
 * iterates were moved into a box, whose step size changed in the window, or of which not every step was kept.
 */
functions {
#include parts/functions.stan
}
data {
  int<lower=1> D;                        // number of variational parameters
  int<lower=3> num_steps;                // steps in the window, n
  matrix[num_steps + 1, D] phi;          // iterates in the window, and the one after its last step
  vector<lower=0>[D] learning_rate;      // step size, unit of phi / gradient, positive
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
    vector[num_steps] here = phi[1 : num_steps, d];
    vector[num_steps] there = phi[2 : num_steps + 1, d];
    real pull = learning_rate[d] * sampling_rate * curvature[d];
    target += normal_lpdf(there | here - pull * (here - phi_star[d]), learning_rate[d] * s[d]);
  }
}
generated quantities {
#include parts/theta.stan
}
