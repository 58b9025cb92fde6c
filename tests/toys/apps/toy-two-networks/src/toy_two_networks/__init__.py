"""A toy of two networks in PyTorch; see the README."""
