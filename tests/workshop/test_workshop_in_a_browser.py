"""The served workshop, used as its readers use it: every readout must equal what `trace` returns."""

import numpy as np
import pytest
from tests.workshop.browser import WIDTHS, Watched

from online_softmax.commands.trace import totals
from online_softmax.trace import trace
from online_softmax.workshop.rows import make_row


class Shared(Watched):
    """The page that most tests use one after the other (opening it takes longer than they), and the row it shows."""

    def __init__(self, browser, address):
        super().__init__(browser)
        self.kind, self.n, self.scale, self.seed, self.block, self.dtype = "normal", 64, 1.0, 17, 8, "float64"
        self.open(address)

    def traced(self):
        return trace(make_row(self.kind, self.n, self.scale, self.seed), block=self.block, dtype=self.dtype)

    def slider(self, name):
        return self.page.get_by_role("slider", name=name, exact=True).first

    def shows(self, result=None):
        for name, value in totals(result or self.traced()):
            self.wait_for_readout(name, value)


@pytest.fixture(scope="module")
def kept(browser):
    pages = []
    yield pages
    for page in pages:
        page.close()


@pytest.fixture
def shared(kept, browser, address, request):
    if not kept:
        kept.append(Shared(browser, address))
    failures = request.session.testsfailed
    yield kept[0]
    if request.session.testsfailed == failures:
        kept[0].complains_of_nothing()
    else:  # the next test gets a page of its own
        kept.pop().context.close()


def test_it_opens_with_the_known_values(shared):
    result = trace(np.random.default_rng(17).standard_normal(64), block=8)
    assert (result.updates, result.rescales) == (8, 2)
    shared.shows(result)


def test_controls_change_by_keyboard(shared):
    shared.slider("logits").focus()
    shared.page.keyboard.press("ArrowRight")
    shared.n += 1
    shared.shows()
    shared.page.get_by_label("block size").nth(0).focus()
    shared.page.keyboard.press("ArrowUp")
    shared.block += 1
    shared.shows()
    shared.page.get_by_label("kind of row").select_option("normal")  # a row whose numbers the seed decides
    shared.kind = "normal"
    shared.page.get_by_label("seed").nth(0).focus()
    shared.page.keyboard.press("ArrowUp")
    shared.seed += 1
    shared.shows()


def test_every_kind_of_row_is_drawn(shared):
    for kind in ("sorted down", "constant", "one outlier", "with −inf"):
        shared.page.get_by_label("kind of row").select_option(kind)
        shared.kind = kind
        shared.shows()


def test_steps_show_the_arithmetic_of_their_block(shared):
    shared.page.get_by_label("kind of row").select_option("normal")
    shared.kind = "normal"
    blocks = shared.traced().blocks
    shared.wait_for_readout("step s", f"{blocks[3].s_after:.6g}")
    shared.slider("step: block").focus()
    for block in blocks[4:6]:
        shared.page.keyboard.press("ArrowRight")
        shared.wait_for_readout("step s", f"{block.s_after:.6g}")
        shared.wait_for_readout("step m", f"{block.m_after:.6g}")


def test_pasted_logits_are_traced_and_never_evaluated(shared):
    shared.page.get_by_label("kind of row").select_option("pasted")
    notice = shared.page.get_by_role("alert")
    notice.get_by_text("Nothing is pasted yet").wait_for()
    box = shared.page.get_by_label("numbers, separated by spaces")
    box.fill("1, 2; -inf 3\n1e3 4.5 0 0 −2")
    shared.shows(trace([1, 2, -np.inf, 3, 1e3, 4.5, 0, 0, -2], block=shared.block, dtype=shared.dtype))
    for text, complaint in [
        ("1 two 3", "“two”, the entry number 2, is no number."),
        ("__import__('os').getpid()", "is no number."),
        ("1 2 3", f"The block, {shared.block}, is larger than the row, 3"),
    ]:
        box.fill(text)
        notice.get_by_text(complaint).wait_for()
    shared.page.get_by_label("kind of row").select_option(shared.kind)
    shared.shows()


def test_an_emptied_field_gets_a_plain_message(shared):
    block = shared.page.get_by_label("block size").nth(0)
    block.fill("")
    block.press("Enter")
    shared.page.get_by_text("A number is missing: fill in every field.").wait_for()
    block.fill("4")
    block.press("Enter")
    shared.block = 4
    shared.shows()


# After those whose numbers say more: with a scale of 1000 nearly every normaliser is 1.
def test_controls_change_by_mouse(shared):
    shared.page.get_by_label("kind of row").select_option("sorted up")
    shared.kind = "sorted up"
    shared.shows()
    box = shared.slider("scale").locator("xpath=../..").bounding_box()
    shared.page.mouse.click(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    shared.scale = 1000.0
    shared.shows()
    shared.page.get_by_label("dtype").nth(0).select_option("float32")
    shared.dtype = "float32"
    shared.shows()


def test_merges_in_any_order_agree(shared):
    for order in ("left to right", "in a random order", "as a tree"):
        shared.page.get_by_role("radio", name=order).click()
        shared.page.get_by_text(f"Merged {order}").wait_for()
        answers = {shared.readout(f"log-sum-exp, {name}")[:14] for name in ("left to right", "as a tree")}
        assert len(answers) == 1


def test_the_last_tile_is_full_attention(shared):
    shared.slider("tile size").focus()
    shared.page.keyboard.press("ArrowLeft")
    shared.wait_for_readout("tiles", "16")
    assert shared.readout("output after the last tile") == shared.readout("full attention")


def test_three_reads_of_32_heads_of_4096_by_4096_in_fp16_are_3_2_gigabytes(shared):
    assert shared.readout("3 reads") == "3.22 GB"
    rows = shared.page.get_by_label("rows").nth(0)
    rows.fill("8192")
    rows.press("Enter")
    shared.wait_for_readout("3 reads", "6.44 GB")


def test_the_button_measures_the_ladder(shared):
    from online_softmax.ladder import cpu

    shared.page.get_by_role("button", name="Measure the ladder on this machine").click()
    if cpu.missing() is not None:
        shared.page.get_by_text("The ladder cannot run here").wait_for()
        return
    shared.page.get_by_text("Measuring").first.wait_for()
    shared.page.get_by_role("cell", name="online, by element").wait_for(timeout=120_000)
    assert shared.page.get_by_text("fused against online followed by a loss").is_visible()


def test_answers_unfold_by_keyboard(shared):
    questions = shared.page.locator("summary")
    questions.nth(5).wait_for()
    assert questions.count() == 6
    for question in questions.all():
        question.focus()
        shared.page.keyboard.press("Enter")
    assert shared.page.locator("details[open] table").count() == 6
    shared.page.get_by_role("cell", name="two empty states").wait_for()


# The narrow page opens narrow and the wide one wide; then each is made as the other.
@pytest.mark.parametrize(("scheme", "widths"), [("light", WIDTHS), ("dark", WIDTHS[::-1])])
def test_it_fits_and_is_quiet_in_every_look(browser, address, scheme, widths):
    watched = Watched(browser, scheme, widths[0])
    watched.open(address)
    watched.page.get_by_text("arXiv:1805.02867").wait_for()
    watched.page.wait_for_selector("figure canvas, figure svg")
    for width in widths:
        watched.resize(width)
        watched.page.wait_for_timeout(1000)
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
        dark = watched.page.evaluate("document.body.classList.contains('dark')")
        assert dark == (scheme == "dark")
    watched.close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("vl_convert")
    from online_softmax.workshop.export import export

    path = tmp_path_factory.mktemp("exported") / "workshop.html"
    export(path)
    return path.as_uri()


@pytest.mark.parametrize(("scheme", "widths"), [("light", WIDTHS), ("dark", WIDTHS[::-1])])
def test_the_exported_page_works_with_the_network_cut(browser, exported, scheme, widths):
    result = trace(np.random.default_rng(17).standard_normal(64), block=8)
    watched = Watched(browser, scheme, widths[0])
    watched.context.set_offline(True)
    watched.page.goto(exported)
    watched.page.wait_for_selector("#chart-0 canvas, #chart-0 svg")
    charts = watched.page.locator(".chart")
    drawn = watched.page.locator(".chart:has(canvas), .chart:has(svg)")
    charts.nth(charts.count() - 1).locator("canvas, svg").first.wait_for()
    for width in widths:
        watched.resize(width)
        watched.page.wait_for_timeout(300)
        assert drawn.count() == charts.count() >= 8
        for name, value in totals(result):
            assert watched.readout(name) == value
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    watched.close()
