  vector[K] theta;  // a draw of the model's parameters from the guide at phi_star, unconstrained
  vector[sum(num_entries)] model_parameters;  // the same on their own scales, block after block
  theta = guide_rng(phi_star, K, scale_is_sd, num_noise, weight_row, weight_noise);
  {
    int from = 1;
    int to = 1;
    for (b in 1 : num_blocks) {
      model_parameters[to : to + num_entries[b] - 1]
        = block_values(segment(theta, from, num_free[b]), support[b], num_rows[b], num_columns[b]);
      from += num_free[b];
      to += num_entries[b];
    }
  }
