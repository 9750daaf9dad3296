"""The served workshop, used as its readers use it: every readout must equal what `trace` returns."""

import numpy as np
import pytest
from tests.workshop.browser import LOOKS, Watched

from online_softmax.commands.trace import totals
from online_softmax.trace import trace
from online_softmax.workshop.rows import make_row

pytestmark = pytest.mark.xdist_group("browser")  # one server and one browser for all


@pytest.fixture
def watched(browser, address):
    watched = Watched(browser)
    watched.page.goto(address)
    watched.page.wait_for_selector('[data-readout="rescales"]')
    yield watched
    watched.close()


def assert_totals(watched, result):
    for name, value in totals(result):
        watched.wait_for_readout(name, value)


def slider(watched, name, index=0):
    return watched.page.get_by_role("slider", name=name, exact=True).nth(index)


def test_the_first_readouts_are_the_known_values(watched):
    result = trace(np.random.default_rng(17).standard_normal(64), block=8)
    assert (result.updates, result.rescales) == (8, 2)
    assert_totals(watched, result)


def test_controls_change_by_mouse(watched):
    watched.page.get_by_label("kind of row").select_option("sorted up")
    assert_totals(watched, trace(make_row("sorted up", 64, 1.0, 17), block=8))
    track = slider(watched, "scale").locator("xpath=../..")
    box = track.bounding_box()
    watched.page.mouse.click(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    assert_totals(watched, trace(make_row("sorted up", 64, 1000.0, 17), block=8))
    watched.page.get_by_label("dtype").nth(0).select_option("float32")
    assert_totals(watched, trace(make_row("sorted up", 64, 1000.0, 17), block=8, dtype="float32"))


def test_controls_change_by_keyboard(watched):
    slider(watched, "logits").focus()
    watched.page.keyboard.press("ArrowRight")
    assert_totals(watched, trace(make_row("normal", 65, 1.0, 17), block=8))
    watched.page.get_by_label("block size").nth(0).focus()
    watched.page.keyboard.press("ArrowUp")
    assert_totals(watched, trace(make_row("normal", 65, 1.0, 17), block=9))
    watched.page.get_by_label("seed").nth(0).focus()
    watched.page.keyboard.press("ArrowUp")
    assert_totals(watched, trace(make_row("normal", 65, 1.0, 18), block=9))


def test_every_kind_of_row_is_drawn(watched):
    for kind in ("sorted down", "constant", "one outlier", "with −inf"):
        watched.page.get_by_label("kind of row").select_option(kind)
        assert_totals(watched, trace(make_row(kind, 64, 1.0, 17), block=8))


def test_steps_show_the_arithmetic_of_their_block(watched):
    blocks = trace(np.random.default_rng(17).standard_normal(64), block=8).blocks
    watched.wait_for_readout("step s", f"{blocks[3].s_after:.6g}")
    slider(watched, "step: block").focus()
    for block in blocks[4:6]:
        watched.page.keyboard.press("ArrowRight")
        watched.wait_for_readout("step s", f"{block.s_after:.6g}")
        watched.wait_for_readout("step m", f"{block.m_after:.6g}")


def test_pasted_logits_are_traced_and_never_evaluated(watched):
    watched.page.get_by_label("kind of row").select_option("pasted")
    notice = watched.page.get_by_role("alert")
    notice.get_by_text("Nothing is pasted yet").wait_for()
    box = watched.page.get_by_label("numbers, separated by spaces")
    box.fill("1, 2; -inf 3\n1e3 4.5 0 0 −2")
    assert_totals(watched, trace([1, 2, -np.inf, 3, 1e3, 4.5, 0, 0, -2], block=8))
    for text, complaint in [
        ("1 two 3", "“two”, the entry number 2, is no number."),
        ("__import__('os').getpid()", "is no number."),
        ("1 2 3", "The block, 8, is larger than the row, 3"),
    ]:
        box.fill(text)
        notice.get_by_text(complaint).wait_for()


def test_an_emptied_field_gets_a_plain_message(watched):
    block = watched.page.get_by_label("block size").nth(0)
    block.fill("")
    block.press("Enter")
    watched.page.get_by_text("A number is missing: fill in every field.").wait_for()
    block.fill("4")
    block.press("Enter")
    assert_totals(watched, trace(make_row("normal", 64, 1.0, 17), block=4))


def test_merges_in_any_order_agree(watched):
    for order in ("left to right", "in a random order", "as a tree"):
        watched.page.get_by_role("radio", name=order).click()
        watched.page.get_by_text(f"Merged {order}").wait_for()
        answers = {watched.readout(f"log-sum-exp, {name}")[:14] for name in ("left to right", "as a tree")}
        assert len(answers) == 1


def test_the_last_tile_is_full_attention(watched):
    slider(watched, "tile size").focus()
    watched.page.keyboard.press("ArrowLeft")
    watched.wait_for_readout("tiles", "16")
    assert watched.readout("output after the last tile") == watched.readout("full attention")


def test_three_reads_of_32_heads_of_4096_by_4096_in_fp16_are_3_2_gigabytes(watched):
    assert watched.readout("3 reads") == "3.22 GB"
    rows = watched.page.get_by_label("rows").nth(0)
    rows.fill("8192")
    rows.press("Enter")
    watched.wait_for_readout("3 reads", "6.44 GB")


def test_the_button_measures_the_ladder(watched):
    from online_softmax.ladder import cpu

    watched.page.get_by_role("button", name="Measure the ladder on this machine").click()
    if cpu.missing() is not None:
        watched.page.get_by_text("The ladder cannot run here").wait_for()
        return
    watched.page.get_by_text("Measuring").first.wait_for()
    watched.page.get_by_role("cell", name="online, by element").wait_for(timeout=120_000)
    assert watched.page.get_by_text("fused against online followed by a loss").is_visible()


def test_answers_unfold_by_keyboard(watched):
    questions = watched.page.locator("summary")
    questions.nth(5).wait_for()
    assert questions.count() == 6
    for question in questions.all():
        question.focus()
        watched.page.keyboard.press("Enter")
    assert watched.page.locator("details[open] table").count() == 6
    watched.page.get_by_role("cell", name="two empty states").wait_for()


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_it_fits_and_is_quiet_in_every_look(browser, address, look):
    watched = Watched(browser, look)
    watched.page.goto(address)
    watched.page.wait_for_selector('[data-readout="rescales"]')
    watched.page.get_by_text("arXiv:1805.02867").wait_for()
    watched.page.wait_for_selector("figure canvas, figure svg")
    watched.page.wait_for_timeout(1000)
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= look[1]
    dark = watched.page.evaluate("document.body.classList.contains('dark')")
    assert dark == (look[0] == "dark")
    watched.close()


def test_the_exported_page_works_with_the_network_cut(browser, tmp_path):
    pytest.importorskip("vl_convert")
    from online_softmax.workshop.export import export

    export(tmp_path / "workshop.html")
    result = trace(np.random.default_rng(17).standard_normal(64), block=8)
    for look in LOOKS:
        watched = Watched(browser, look)
        watched.context.set_offline(True)
        watched.page.goto((tmp_path / "workshop.html").as_uri())
        watched.page.wait_for_selector("#chart-0 canvas, #chart-0 svg")
        charts = watched.page.locator(".chart")
        drawn = watched.page.locator(".chart:has(canvas), .chart:has(svg)")
        charts.nth(charts.count() - 1).locator("canvas, svg").first.wait_for()
        assert drawn.count() == charts.count() >= 8
        for name, value in totals(result):
            assert watched.readout(name) == value
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= look[1]
        watched.close()
