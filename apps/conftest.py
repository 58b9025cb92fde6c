"""What the tests of trainkit and of all apps share."""

import signal

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` would have all of them ignore it
