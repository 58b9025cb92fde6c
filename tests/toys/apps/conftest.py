"""What the tests of the toys share: as those of the apps, in the environment of a framework."""

import signal

# `nohup make test &` would have the tests and all that they start ignore both.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
