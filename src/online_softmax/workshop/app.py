# /// script
# [tool.marimo.display]
# theme = "system"
# ///
# mypy: disable-error-code="no-untyped-def"
"""The page: controls, and the sections that draw what they ask for."""

import marimo

app = marimo.App(width="medium", app_title="Online softmax: the workshop", css_file="style.css")


@app.cell(hide_code=True)
def _():
    import marimo as mo

    from online_softmax.workshop import page
    from online_softmax.workshop.rows import KINDS
    from online_softmax.workshop.sections import (
        SECTIONS,
        any_order,
        attention,
        cost,
        glossary,
        loss,
        one_pass,
        questions,
    )

    def show(pieces):
        return mo.Html(page.to_html(pieces, lambda chart: mo.as_html(chart).text))

    def controls(*elements):
        return mo.hstack(elements, wrap=True, justify="start", align="end", gap=1.25)

    def need(*elements):
        empty = any(element.value is None for element in elements)
        mo.stop(empty, show([page.notice("A number is missing: fill in every field.")]))

    return (
        KINDS,
        SECTIONS,
        any_order,
        attention,
        controls,
        cost,
        glossary,
        loss,
        mo,
        need,
        one_pass,
        page,
        questions,
        show,
    )


@app.cell(hide_code=True)
def _(SECTIONS, page, show):
    show([page.opening(SECTIONS)])
    return


@app.cell(hide_code=True)
def _(KINDS, controls, mo, one_pass, page, show):
    kind = mo.ui.dropdown(KINDS, value="normal", label="kind of row")
    n = mo.ui.slider(1, 256, value=64, label="logits", show_value=True, debounce=True)
    scale = mo.ui.slider(steps=[0.1, 0.5, 1, 2, 5, 10, 100, 1000], value=1, label="scale", show_value=True)
    block = mo.ui.number(1, 1024, value=8, step=1, label="block size")
    seed = mo.ui.number(0, 9999, value=17, step=1, label="seed")
    dtype = mo.ui.dropdown(("float16", "float32", "float64"), value="float64", label="dtype")
    mo.vstack([show([page.heading(one_pass)]), controls(kind, n, scale, block, seed, dtype)])
    return block, dtype, kind, n, scale, seed


@app.cell(hide_code=True)
def _(kind, mo):
    pasted = mo.ui.text_area(
        label="numbers, separated by spaces, commas or new lines", rows=3, full_width=True, debounce=300
    )
    mo.vstack([pasted] if kind.value == "pasted" else [])
    return (pasted,)


@app.cell(hide_code=True)
def _(block, dtype, kind, mo, n, need, one_pass, page, pasted, scale, seed, show):
    need(block, seed)
    try:
        row_trace = one_pass.make_trace(
            kind.value, n.value, scale.value, seed.value, block.value, dtype.value, pasted.value
        )
    except (TypeError, ValueError) as error:
        row_trace = None
        mo.stop(True, show([page.notice(str(error))]))
    return (row_trace,)


@app.cell(hide_code=True)
def _(controls, mo, row_trace):
    mo.stop(row_trace is None)
    step = mo.ui.slider(
        1, row_trace.updates, value=min(4, row_trace.updates), label="step: block", show_value=True, full_width=False
    )
    controls(step) if row_trace.updates > 1 else None
    return (step,)


@app.cell(hide_code=True)
def _(mo, one_pass, row_trace, show, step):
    mo.stop(row_trace is None)
    show(one_pass.view(row_trace, step.value))
    return


@app.cell(hide_code=True)
def _(any_order, controls, mo, page, show):
    parts = mo.ui.slider(2, 16, value=8, label="parts", show_value=True)
    parts_are = mo.ui.dropdown(list(any_order.NOUNS), value="threads of a warp", label="the parts are")
    order = mo.ui.radio(any_order.ORDERS, value="as a tree", label="merged", inline=True)
    order_seed = mo.ui.number(0, 9999, value=17, step=1, label="seed")
    mo.vstack([show([page.heading(any_order)]), controls(parts, parts_are, order_seed, order)])
    return order, order_seed, parts, parts_are


@app.cell(hide_code=True)
def _(any_order, need, order, order_seed, parts, parts_are, show):
    need(order_seed)
    show(any_order.view(parts.value, parts_are.value, order.value, order_seed.value))
    return


@app.cell(hide_code=True)
def _(attention, controls, mo, page, show):
    keys = mo.ui.slider(8, 128, step=8, value=64, label="keys", show_value=True)
    tile = mo.ui.slider(steps=[1, 2, 4, 8, 16, 32], value=8, label="tile size", show_value=True)
    sharpness = mo.ui.slider(steps=[0.5, 1, 2, 5, 10, 100], value=2, label="sharpness", show_value=True)
    attention_seed = mo.ui.number(0, 9999, value=17, step=1, label="seed")
    mo.vstack([show([page.heading(attention)]), controls(keys, tile, sharpness, attention_seed)])
    return attention_seed, keys, sharpness, tile


@app.cell(hide_code=True)
def _(controls, keys, mo, tile):
    tile_count = -(-keys.value // tile.value)
    tile_step = mo.ui.slider(1, tile_count, value=min(4, tile_count), label="step: tile", show_value=True)
    controls(tile_step) if tile_count > 1 else None
    return (tile_step,)


@app.cell(hide_code=True)
def _(attention, attention_seed, keys, need, sharpness, show, tile, tile_step):
    need(attention_seed)
    show(attention.view(keys.value, tile.value, sharpness.value, attention_seed.value, tile_step.value))
    return


@app.cell(hide_code=True)
def _(controls, loss, mo, page, show):
    largest = mo.ui.slider(
        steps=[1, 2, 5, 10, 11, 12, 20, 50, 88, 89, 100, 200, 500, 700, 710, 1000],
        value=5,
        label="largest logit",
        show_value=True,
    )
    target = mo.ui.slider(0, 5, value=1, label="target class", show_value=True)
    loss_dtype = mo.ui.dropdown(("float16", "float32", "float64"), value="float32", label="dtype")
    mo.vstack([show([page.heading(loss)]), controls(largest, target, loss_dtype)])
    return largest, loss_dtype, target


@app.cell(hide_code=True)
def _(largest, loss, loss_dtype, show, target):
    show(loss.view(largest.value, target.value, loss_dtype.value))
    return


@app.cell(hide_code=True)
def _(controls, cost, mo, page, show):
    rows = mo.ui.number(1, 1_000_000, value=4096, step=1, label="rows")
    columns = mo.ui.number(1, 10_000_000, value=4096, step=1, label="columns")
    heads = mo.ui.number(1, 1024, value=32, step=1, label="heads")
    element = mo.ui.dropdown(("fp16", "bf16", "fp32", "fp64"), value="fp16", label="dtype")
    bandwidth = mo.ui.number(1, 100_000, value=4250, label="GB/s of memory")
    mo.vstack([show([page.heading(cost)]), controls(rows, columns, heads, element, bandwidth)])
    return bandwidth, columns, element, heads, rows


@app.cell(hide_code=True)
def _(bandwidth, columns, cost, element, heads, need, rows, show):
    need(rows, columns, heads, bandwidth)
    show(cost.view(rows.value, columns.value, heads.value, element.value, bandwidth.value))
    return


@app.cell(hide_code=True)
def _(cost, mo, show):
    measure = mo.ui.run_button(label="Measure the ladder on this machine")
    mo.vstack([show([cost.LADDER]), measure])
    return (measure,)


@app.cell(hide_code=True)
def _(cost, measure, mo, page, show):
    mo.stop(not measure.value)
    mo.stop(cost.missing() is not None, show([page.notice(f"The ladder cannot run here: {cost.missing()}.")]))
    with mo.status.progress_bar(total=cost.steps(), title="Measuring", remove_on_exit=True) as bar:
        ladder = cost.measure(lambda state: bar.update(subtitle=state))
    show(cost.ladder_view(ladder))
    return


@app.cell(hide_code=True)
def _(mo, page, questions, show):
    show([page.heading(questions)])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.overflow(largest=720.0)])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.reads(rows=8192, columns=32768)])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.correction(old=(1.0, 2.0), new=4.0)])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.tiling(keys=64, tile=8)])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.write_the_merge()])
    return


@app.cell(hide_code=True)
def _(questions, show):
    show([questions.fusing(largest=60.0)])
    return


@app.cell(hide_code=True)
def _(glossary, page, show):
    show([page.heading(glossary), *glossary.default()])
    return


if __name__ == "__main__":
    app.run()
