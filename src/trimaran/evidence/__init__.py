"""Write the evidence of runs without private facts, and check evidence that other people submit."""
