import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from browser import address, browser  # noqa: E402, F401  fixtures
