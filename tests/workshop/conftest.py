from tests.workshop.browser import address, browser  # noqa: F401  fixtures
