"""A toy app in TensorFlow that obeys the app contract."""
