"""Data sets without a framework: what `dataset.json` says, the formats, staging, the order."""
