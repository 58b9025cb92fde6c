"""Settings and fixtures that the tests of trainkit and of all apps share."""

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import time_limit

# `nohup make test &` would have the tests and all that they start ignore both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Helpers of an app's tests are modules beside them.
APPS = Path(__file__).parent
sys.path += map(str, sorted([*APPS.glob("*/tests"), *APPS.glob("*/tests/on_*")]))

if find_spec("trainkit"):  # shards is tested in the tool's environment, without it
    from packed_images import numbered, tiny  # noqa: F401 - fixtures: small data sets
    from written_shards import convert  # noqa: F401 - the same in any format


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that skips tests which a slow machine cannot finish in time."""
    time_limit.register(config)
