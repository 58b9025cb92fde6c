"""Settings that the tests of the toy apps share, as in `apps/conftest.py`."""

import signal

import pytest

import time_limit

# `nohup make test &` would have the tests and all that they start ignore both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that skips tests that a slow machine cannot finish in time."""
    time_limit.register(config)
