"""A toy that obeys the app contract in TensorFlow."""
