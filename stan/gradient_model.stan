/* Noise-aware post-processing of a DP-SGD trace: posterior of the optimum and the curvature.
 *
 * In the window after burn-in each variational parameter d has its own regression of noisy gradient on
 * iterate (index d left out),
 *
 *   noisy_gradient[t] ~ normal(sampling_rate * curvature * (phi[t] - phi_star), s),
 *   s^2 = noise_std^2 + tau^2,     curvature = log1p_exp(v),
 *
 * with priors  v ~ normal(v_prior_mean, v_prior_sd)  (a normal on v itself, so no Jacobian),
 * phi_star ~ normal(phi_star_prior_mean, phi_star_prior_sd)  and, if use_tau,  tau ~ half-normal(tau_prior_scale).
 *
 * The trace enters through sums that are taken once. Three statistics carry them, independent given the
 * curvature c = sampling_rate * curvature and s:
 *
 *   slope    = s_gp / s_pp              ~ normal(c, s / sqrt(s_pp)),
 *   g_bar                               ~ normal(c * (phi_bar - phi_star), s / sqrt(num_steps)),
 *   residual = s_gg - s_gp^2 / s_pp     ~ s^2 * chi_square(num_steps - 2).
 *
 * phi_star is integrated out of g_bar in closed form, and comes back from its conditional normal:
 *
 *   phi_star = phi_bar + (its conditional mean given c and s) + z_delta / sqrt(its conditional precision).
 *
 * The sampler works on z_v, z_delta and z_tau, standardised because the posterior's own scales differ by many
 * orders of magnitude. target is the log density of trace, z_v, z_delta and z_tau, all constants included.
 *
 * Needs Stan 2.29 or later. Its twin in Python is nadpvi.gradient_model; the row-by-row version is
 * gradient_model_trace.stan.
 */
functions {
#include parts/functions.stan
}
data {
  int<lower=1> D;                        // number of variational parameters
  int<lower=3> num_steps;                // steps in the window, n
  vector[D] phi_bar;                     // mean iterate, unit of phi
  vector[D] g_bar;                       // mean noisy gradient, unit of the summed gradient
  vector<lower=0>[D] s_pp;               // sum of (phi - phi_bar)^2, must be positive
  vector[D] s_gp;                        // sum of (noisy_gradient - g_bar) * (phi - phi_bar)
  vector<lower=0>[D] s_gg;               // sum of (noisy_gradient - g_bar)^2
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
  vector[D] slope = s_gp ./ s_pp;                              // least-squares slope of gradient on iterate
  vector<lower=0>[D] residual = fmax(s_gg - slope .* s_gp, 0); // sum of squares about that line
  vector<lower=0>[D] root_s_pp = sqrt(s_pp);                   // unit of phi
  vector[D] delta_prior_mean = phi_star_prior_mean - phi_bar;  // prior mean of delta = phi_star - phi_bar
  real log_size = -0.5 * (sum(log(s_pp)) + D * log(num_steps)); // constant part of the log density
#include parts/guide_sizes.stan
}
parameters {
  vector[D] z_v;                              // standardised v; standard normal prior
  vector[D] z_delta;                          // standardised phi_star; exactly standard normal
  vector<lower=0>[use_tau ? D : 0] z_tau;     // tau over tau_prior_scale; half-normal prior
}
transformed parameters {
  vector[D] v = v_prior_mean + v_prior_sd .* z_v;       // unconstrained curvature
  vector<lower=0>[D] curvature = log1p_exp(v);          // a, Hessian of the negative ELBO, unit of gradient / phi
  vector<lower=0>[use_tau ? D : 0] tau = tau_prior_scale .* z_tau;  // subsampling sd, unit of the gradient
}
model {
  vector[D] c = sampling_rate * curvature;
  vector[D] s = total_std(noise_std, tau);
  target += half_std_normal_lpdf(z_tau);
  target += std_normal_lpdf(z_v);
  target += std_normal_lpdf(z_delta);
  target += normal_lpdf(slope | c, s ./ root_s_pp);
  target += normal_lpdf(g_bar | -c .* delta_prior_mean, hypot(c .* phi_star_prior_sd, s / sqrt(num_steps)));
  target += log_size - (num_steps - 2) * (sum(log(s)) + 0.5 * D * log(2 * pi()))
            - 0.5 * sum(residual ./ square(s));
}
generated quantities {
  vector[D] phi_star;  // optimum of the variational problem, unit of phi
  {
    vector[D] c = sampling_rate * curvature;
    vector[D] weight = num_steps * c ./ square(total_std(noise_std, tau));  // information on delta, over c
    vector[D] precision = inv_square(phi_star_prior_sd) + weight .* c;  // conditional precision of delta
    phi_star = phi_bar + (delta_prior_mean ./ square(phi_star_prior_sd) - weight .* g_bar) ./ precision
               + z_delta .* inv_sqrt(precision);
  }
#include parts/theta.stan
}
