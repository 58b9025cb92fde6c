"""A toy app in PyTorch that trains two networks; see the README."""
