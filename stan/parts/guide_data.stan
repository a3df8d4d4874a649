  // The guide, to draw the model's parameters theta at phi_star = (mu, u, weights). K = 0 leaves theta out.
  int<lower=0> K;                        // number of model parameters, unconstrained
  int<lower=0, upper=1> scale_is_sd;     // 1: a scale s(u) is softplus(u); 0: its square is
  int<lower=K> num_noise;                // standard normal numbers that one draw takes; K for mean-field
  int<lower=0> num_weights;              // weights of a guide with correlations; 0 for mean-field
  array[num_weights] int<lower=1, upper=K> weight_row;            // parameter that each weight moves
  array[num_weights] int<lower=1, upper=num_noise> weight_noise;  // noise that it multiplies
  int<lower=0> num_blocks;               // named blocks of parameters; 0 without theta
  array[num_blocks] int<lower=1, upper=6> support;  // 1 real, 2 positive, 3 unit interval, 4 ordered,
                                                    // 5 simplex, 6 covariance
  array[num_blocks] int<lower=1> num_rows;          // how many vectors; 1 for a matrix
  array[num_blocks] int<lower=1> num_columns;       // length of a vector, size of a matrix
