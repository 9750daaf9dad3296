"""``python -m online_softmax``: the same as the command ``online-softmax``."""

import sys

from .cli import main

sys.exit(main())
