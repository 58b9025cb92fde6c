"""Run recipes: prepare the data and the image, build the exact command, and start or resume it."""
