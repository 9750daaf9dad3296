"""The demo's text: real words, and nothing held out that training has seen."""

import math

from online_softmax.demo import text


def test_no_held_out_paragraph_occurs_in_training():
    words = text.load()
    training = {tuple(paragraph) for paragraph in words.training}
    assert len(words.held_out) > 100
    assert sum(tuple(paragraph) in training for paragraph in words.held_out) == 0


def test_windows_hold_the_words_before_each_word_and_end_with_the_boundary():
    rows = text.windows([[5, 6]])
    assert rows == [[0, 0, 0, 0, 5], [0, 0, 0, 5, 6], [0, 0, 5, 6, 0]]


def test_unigram_perplexity_of_a_text_worked_out_by_hand():
    # Trained on the words 1, 1 and 0, each word counted once more: 2 of 6 for 0, 3 for 1, 1 for 2.
    small = text.Text(("¶", "a", "b"), [[1, 1]], [[1]])
    expected = math.exp(-(math.log(3 / 6) + math.log(2 / 6)) / 2)
    assert math.isclose(text.unigram_perplexity(small), expected)
