  /* Functions that the programs of nadpvi share. */

  // sd of a noisy gradient given the subsampling noise; tau of size 0 stands for none
  vector total_std(vector noise_std, vector tau) {
    if (size(tau) > 0) {
      return hypot(noise_std, tau);
    }
    return noise_std;
  }

  // log density of independent half-normals of scale 1
  real half_std_normal_lpdf(vector z) {
    return std_normal_lpdf(z) + size(z) * log2();
  }

  // increasing vector: the first entry, then log differences
  vector ordered_values(vector z) {
    int n = size(z);
    vector[n] x = z;
    for (i in 2 : n) {
      x[i] = x[i - 1] + exp(z[i]);
    }
    return x;
  }

  // simplex by stick-breaking: z = 0 is the vector of equal shares
  vector simplex_values(vector z) {
    int n = size(z) + 1;
    vector[n] x;
    real log_left = 0;
    for (i in 1 : n - 1) {
      real share = z[i] - log(n - i);
      x[i] = exp(log_left - log1p_exp(-share));
      log_left -= log1p_exp(share);
    }
    x[n] = exp(log_left);
    return x;
  }

  // covariance matrix from its Cholesky factor, row by row, with log diagonal
  vector covariance_values(vector z, int n) {
    matrix[n, n] factor = rep_matrix(0, n, n);
    int at = 1;
    for (i in 1 : n) {
      for (j in 1 : i) {
        factor[i, j] = j < i ? z[at] : exp(z[at]);
        at += 1;
      }
    }
    return to_vector(tcrossprod(factor));
  }

  // A block's values, last index fastest, at its unconstrained coordinates. support: 1 real, 2 positive, 3 unit
  // interval, entry by entry; 4 ordered, 5 simplex, one vector a row; 6 covariance, one matrix.
  vector block_values(vector z, int support, int rows, int columns) {
    if (support == 2) {
      return exp(z);
    }
    if (support == 3) {
      return inv_logit(z);
    }
    if (support == 6) {
      return covariance_values(z, columns);
    }
    if (support < 4) {
      return z;
    }
    vector[rows * columns] x;
    int width = size(z) %/% rows;
    for (row in 1 : rows) {
      vector[width] part = segment(z, (row - 1) * width + 1, width);
      vector[columns] values;
      if (support == 4) {
        values = ordered_values(part);
      } else {
        values = simplex_values(part);
      }
      x[(row - 1) * columns + 1 : row * columns] = values;
    }
    return x;
  }

  // A draw of theta from the guide: mu + s(u) * w, where w is standard normal noise, plus weights times noise
  // that parameters have in common.
  vector guide_rng(vector phi, int K, int scale_is_sd, int num_noise, array[] int weight_row,
                   array[] int weight_noise) {
    vector[num_noise] noise;
    vector[K] w;
    vector[K] scale = log1p_exp(phi[K + 1 : 2 * K]);
    for (m in 1 : num_noise) {
      noise[m] = std_normal_rng();
    }
    w = head(noise, K);
    for (i in 1 : size(weight_row)) {
      w[weight_row[i]] += phi[2 * K + i] * noise[weight_noise[i]];
    }
    if (scale_is_sd == 0) {
      scale = sqrt(scale);
    }
    return phi[1 : K] + scale .* w;
  }
