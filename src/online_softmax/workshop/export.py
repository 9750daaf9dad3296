"""The workshop as one HTML page that needs nothing else: every section at its default settings, no network."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import page

if TYPE_CHECKING:
    import altair

# The page forbids itself every request; vega compiles expressions, hence unsafe-eval.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"

_BUNDLE = "window.vegaEmbed = vegaEmbed;"

_LOOK = """
:root { color-scheme: light dark; }
body { margin: 0; background: #fff; color: #1c2024; }
main { max-width: 67rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
.chart { width: 100%; }
@media (prefers-color-scheme: dark) { body { background: #181c1a; color: #ecefed; } }
"""

_DRAW = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const draw = () => specifications.forEach((specification, i) =>
  vegaEmbed("#chart-" + i, specification, {actions: false, theme: dark.matches ? "dark" : undefined}));
dark.addEventListener("change", draw);
draw();
"""


def export(path: str | Path) -> None:
    """Write the page."""
    Path(path).write_text(to_html(), encoding="utf-8")


def to_html() -> str:
    """The page as text."""
    import altair
    import vl_convert

    from .sections import SECTIONS

    specifications: list[dict[str, Any]] = []

    def draw(chart: altair.TopLevelMixin) -> str:
        specifications.append(chart.to_dict())
        return f'<div class="chart" id="chart-{len(specifications) - 1}"></div>'

    sections = "".join(
        f"<section>{page.to_html([page.heading(section), *section.default()], draw)}</section>" for section in SECTIONS
    )
    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>Online softmax: the workshop</title>
<link rel="icon" href="data:,">
<style>{(files(__package__) / "style.css").read_text(encoding="utf-8")}{_LOOK}</style></head>
<body><main>{page.to_html([page.opening(SECTIONS)], draw)}{sections}</main>
<script>{_inside_script(vl_convert.javascript_bundle(_BUNDLE, vl_version=version))}</script>
<script>const specifications = {_inside_script(json.dumps(specifications))};{_DRAW}</script>
</body></html>
"""


def _inside_script(text: str) -> str:
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
