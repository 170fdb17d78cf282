"""Which files globs take, and whether two of them could take the same one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.craft.globs import meet, permitted

PARTS = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=3).map("".join)
TEXTS = ["".join(letters) for size in range(7) for letters in product("abc", repeat=size)]


@given(PARTS, PARTS)
def test_two_globs_meet_where_some_text_is_taken_by_both(one: str, other: str) -> None:
    assert meet(one, other) == any(permitted(text, [one]) and permitted(text, [other]) for text in TEXTS)
    assert meet(one, other) == meet(other, one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("kernels/cpu/my_*", "kernels/cpu/my_kernel.cpp", True),
        ("kernels/cpu/my_*", "kernels/cpu/*.cpp", True),
        ("kernels/*/a.cpp", "kernels/cpu/?.cpp", True),
        ("kernels/cpu/a_*", "kernels/cpu/b_*", False),
        ("kernels/cpu/*", "kernels/cuda/*", False),
        ("kernels/*", "kernels/cpu/a.cpp", False),
        ("a[x", "a[x", True),
        ("a[]", "a?]", True),
        ("[!a]", "a", False),
    ],
)
def test_a_star_stays_inside_its_folder(one: str, other: str, expected: bool) -> None:
    assert meet(one, other) is expected
