"""Tables and targets say what the records hold, and never a figure of a wrong answer."""

from online_softmax.bench import tables, targets
from online_softmax.bench.compiling import NOT_COMPILED


def _rows(table):
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}


def test_cpu_ratios_are_taken_on_the_same_kind_of_array(cpu_records):
    (table,) = tables.of(cpu_records)
    row = _rows(table)["logsumexp 2048 x 32000, fp32"]
    assert row["ours"] == "11 ms"
    assert row["torch"] == "12×"
    assert row["SciPy"] == "30×"
    assert row["ours to the yardstick"] == "1.25 maximum"


def test_cuda_tables_are_fractions_of_the_copy(cuda_records):
    softmax, loss, small = tables.of(cuda_records)
    assert _rows(softmax)["fp32 65536 x 4096"] == {"ours": "0.80", "torch": "0.50", "fastest peer": "1.60×"}
    row = _rows(loss)["bf16 8192 x 32768"]
    assert row["ours"] == "1.00"
    assert row["Liger"] == "fails"
    assert row["fastest peer"] == "2.00×"
    assert (row["extra memory"], row["torch's"]) == ("1.00", "3.00")
    assert _rows(small)["cross_entropy 8 x 128, fp32"] == {"ours": "200 µs", "torch": "0.5×"}


def test_a_table_in_which_we_are_wrong_is_left_out(cpu_records):
    cpu_records[1]["wrong"] = ["online-softmax"]
    assert tables.of(cpu_records) == []


def test_a_wrong_peer_gets_the_word_instead_of_a_figure(cuda_records):
    del cuda_records[1]["seconds"]["torch"]
    cuda_records[1]["wrong"] = ["torch"]
    assert _rows(tables.of(cuda_records)[0])["fp32 65536 x 4096"]["torch"] == "wrong"


def test_a_peer_not_compiled_for_a_shape_is_absent_rather_than_failing(cuda_records):
    cuda_records[2]["refused"] = {"Liger": NOT_COMPILED}
    assert "Liger" not in tables.of(cuda_records)[1].columns


def test_markdown_has_a_line_for_each_row(cpu_records):
    text = tables.markdown(tables.of(cpu_records)[0])
    assert text.startswith("**CPU**\n\n| work | ours |")
    assert text.count("\n| ") == 3


def test_targets_tell_met_missed_and_not_measured(cpu_records):
    rows = {row[0]: row[1:] for row in targets.table(cpu_records).rows}
    assert rows["logsumexp, torch / ours"] == ("≥ 10", "12.00 at fp32 2048 x 32000", "yes")
    assert rows["logsumexp, ours / maximum"] == ("≤ 1.3", "1.25 at fp32 2048 x 32000", "yes")
    assert rows["softmax along axis 0, torch / ours"] == ("≥ 1", "not measured", "–")


def test_a_target_is_measured_at_its_worst_shape(cuda_records):
    rows = {row[0]: row[1:] for row in targets.table(cuda_records).rows}
    assert rows["softmax to 262144"] == ("≥ 0.95", "0.80 at fp32 65536 x 4096", "NO")
    assert rows["any shape, fastest peer / ours"] == ("≥ 0.98", "1.60 at fp32 65536 x 4096", "yes")
    assert rows["cross_entropy 8 x 128, call, torch / ours"][2] == "NO"
