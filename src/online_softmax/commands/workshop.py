"""`online-softmax workshop`: the interactive page, or its export."""

from __future__ import annotations

import argparse

from ..terminal import CommandError
from ._files import to_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--port", type=int, help="port on the loopback address (the first free one from 2718)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--edit", action="store_true", help="copy the app to ./online-softmax-workshop and edit it there"
    )
    parser.add_argument("--export", metavar="F.html", help="write one self-contained page instead of serving")


def run(arguments: argparse.Namespace) -> int:
    """Serve the page, or write it."""
    page = to_write("--export", arguments.export, ".html")
    try:
        _require_packages(serving=page is None)
        if page is not None:
            from ..workshop.export import export

            export(page)
            print(f"Written to {page}: it opens in any browser, without a network.")
            return 0
        from ..workshop.server import serve

        return serve(arguments.port, edit=arguments.edit, browser=not arguments.no_browser)
    except (ImportError, OSError, RuntimeError) as error:
        raise CommandError(str(error)) from None


def _require_packages(serving: bool) -> None:
    try:
        import altair  # noqa: F401

        if serving:
            import marimo  # noqa: F401
        else:
            import vl_convert  # noqa: F401
    except ImportError as error:
        raise ImportError(f"the workshop needs {error.name}: pip install 'online-softmax[workshop]'") from error
