"""What people read of a run: the report with its curves, published evidence, scaling series."""
