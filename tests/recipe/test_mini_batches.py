"""Needle forms, the batches built from them, and the tokenizer they have to survive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from recipe.mini.batches import ANSWER_WEIGHT, Batches
from recipe.mini.encode import encode, needle_forms
from recipe.mini.needles import DIGITS, LANGUAGES, needle
from recipe.mini.tokenizer import train_tokenizer
from recipe.mini.tokenizer_config import END


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [
        "The quick brown fox reads 1234 pages. " * 20,
        "静かな図書館で本を読みます。" * 20,
        "def f(x):\n    return x + 1\n" * 20,
    ]
    return train_tokenizer(texts, 400)


@given(text=st.text(max_size=200))
@settings(deadline=None)
def test_any_text_survives_the_tokenizer(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_tokenizer_is_deterministic_and_splits_digits(tokenizer: Tokenizer) -> None:
    texts = ["some words to merge, some words again"] * 9
    assert train_tokenizer(texts, 300).to_str() == train_tokenizer(texts, 300).to_str()
    assert tokenizer.token_to_id(END) == 0
    assert len(tokenizer.encode("2026").ids) == 4


def test_streams_are_separated_by_id_zero(tokenizer: Tokenizer) -> None:
    stream = encode(tokenizer, ["ab", "cd", ""], at_once=2)
    assert stream.dtype == np.uint16
    assert (stream == 0).sum() == 3
    assert tokenizer.decode(stream[: int(np.argmin(stream))].tolist()) == "ab"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_needle_states_its_digits_once_and_asks_with_its_own_words(language: str) -> None:
    statement, question = needle(language, "90210")
    assert statement.count("90210") == 1
    assert not any(character.isdigit() for character in question + statement.replace("90210", ""))
    assert question.count("\n") >= 3


@pytest.mark.parametrize("digits", ["", "1234", "123456", "12a45", "１２３４５", "-1234"])
def test_a_needle_refuses_anything_but_five_digits(digits: str) -> None:
    with pytest.raises(ValueError, match="5 ASCII digits"):
        needle("en", digits)


def test_a_needle_in_an_unknown_language_is_refused() -> None:
    with pytest.raises(KeyError):
        needle("fr", "12345")


def _batches(tokenizer: Tokenizer, seed: int, needles: float = 0.5) -> Batches:
    forms, digit = needle_forms(tokenizer)
    plain = np.full(5_000, tokenizer.encode("a").ids[0], np.uint16)
    share = {"en": 0.5, "ja": 0.3, "code": 0.2}
    return Batches(dict.fromkeys(LANGUAGES, plain), forms, digit, share=share, needles=needles, seed=seed)


@given(seed=st.integers(0, 1_000), length=st.sampled_from([512, 1024, 2304]))
@settings(deadline=None, max_examples=20)
def test_every_answer_was_stated_before(tokenizer: Tokenizer, seed: int, length: int) -> None:
    batch = _batches(tokenizer, seed).draw(6, length)
    assert batch.tokens.shape == batch.weights.shape == (6, length)
    for tokens, weights in zip(batch.tokens[:3], batch.weights[:3], strict=True):
        answers = np.flatnonzero(weights == ANSWER_WEIGHT)
        hidden = np.flatnonzero(weights == 0.0)
        assert len(answers) == len(hidden) > 0
        assert len(answers) % DIGITS == 0
        assert np.array_equal(tokens[answers], tokens[hidden])
        assert (answers > hidden).all()
    assert (batch.weights[3:] == 1.0).all()


def test_the_same_seed_draws_the_same_batches(tokenizer: Tokenizer) -> None:
    first, second, other = (_batches(tokenizer, seed).draw(4, 256).tokens for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
