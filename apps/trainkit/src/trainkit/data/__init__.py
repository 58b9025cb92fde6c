"""Data sets without a framework: `dataset.json`, formats, staging, and the order of samples."""
