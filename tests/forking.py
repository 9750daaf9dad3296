"""Running a function in a forked child."""

import os
import signal


def succeeds_in_a_child(function, seconds=30):
    """Whether function() is true in a child of this process, which is killed rather than let hang the tests."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
