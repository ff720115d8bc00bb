"""For all tests: signals as in a terminal."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; what tests start would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
