"""Execute runs: prepare the image and the data, build the exact command, start and resume it."""
