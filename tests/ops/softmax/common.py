"""The functions under test by name, with the float64 truth for each."""

from tests.truth import rows_log_softmax, rows_logsumexp, rows_softmax

import online_softmax as osm

NAMES = ("softmax", "log_softmax", "logsumexp")
FUNCTIONS = {name: getattr(osm, name) for name in NAMES}
TRUTH = {"softmax": rows_softmax, "log_softmax": rows_log_softmax, "logsumexp": rows_logsumexp}
