"""What a case of attention is: parameters, cost, inputs, reference."""
