  array[num_blocks] int num_free;     // unconstrained coordinates of each block
  array[num_blocks] int num_entries;  // numbers in its value
  for (b in 1 : num_blocks) {
    if (support[b] == 6) {
      num_free[b] = (num_columns[b] * (num_columns[b] + 1)) %/% 2;
      num_entries[b] = num_columns[b] * num_columns[b];
    } else {
      num_free[b] = num_rows[b] * (num_columns[b] - (support[b] == 5));
      num_entries[b] = num_rows[b] * num_columns[b];
    }
  }
  if (K > 0 && D != 2 * K + num_weights) {
    reject("D must be 2 * K + num_weights, or K must be 0 for no theta; found D = ", D, ", K = ", K,
           ", num_weights = ", num_weights);
  }
  if (sum(num_free) != K) {
    reject("the parameter blocks must have K unconstrained coordinates; found ", sum(num_free), ", K = ", K);
  }
