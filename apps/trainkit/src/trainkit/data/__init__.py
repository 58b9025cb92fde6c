"""Read data sets without a framework: `dataset.json`, formats, staging, order of samples."""
