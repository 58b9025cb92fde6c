"""Self-test of the tiny image."""

import os

import six

assert six.__file__.startswith("/opt/trimaran/"), six.__file__
assert os.environ["TINY"] == "from the image"
print("self-test passed")
