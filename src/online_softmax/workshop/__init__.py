"""The workshop: an interactive page (marimo) that draws the library's own traces, and its self-contained export."""
