"""Settings that the tests of the toy apps share, as in `apps/conftest.py`."""

import signal

from time_limit import (  # noqa: F401 - pytest calls them
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_sessionfinish,
)

# `nohup make test &` would have the tests and all that they start ignore both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
