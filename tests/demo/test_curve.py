"""The learning curve is a picture that a browser can read."""

import xml.etree.ElementTree

from online_softmax.demo.curve import learning_curve

SVG = "{http://www.w3.org/2000/svg}"


def _draw(points):
    return xml.etree.ElementTree.fromstring(learning_curve("A < B", points, 200.0, "level & name", "mark"))


def test_the_line_runs_from_the_left_to_the_right_and_falls_as_the_values_do():
    line = _draw([(0, 4000.0), (5, 300.0), (10, 80.0)]).find(f"{SVG}polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.get("points").split()]
    assert corners == sorted(corners)
    assert [y for _, y in corners] == sorted(y for _, y in corners)


def test_titles_with_markup_are_escaped():
    words = [text.text for text in _draw([(0, 10.0), (1, 5.0)]).iter(f"{SVG}text")]
    assert "A < B" in words
    assert "level & name" in words


def test_a_single_value_still_draws():
    assert _draw([(0, 200.0)]).find(f"{SVG}polyline") is not None
