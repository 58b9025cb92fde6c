"""Write the report of a run with its curves, published evidence, and scaling series."""
