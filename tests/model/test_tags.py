"""Tags: one form for each word, and words that cannot be tags (M4)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import TagError
from thyme.model.tags import (
    OPERATORS,
    TAG_BYTES_MAX,
    TAGS_PER_OBJECT_MAX,
    Tag,
    as_tag,
    as_tags,
    check_tags,
)


def is_tag(text: str) -> bool:
    """Whether a text can be a tag at all."""
    try:
        as_tag(text)
    except TagError:
        return False
    return True


# Letters that fold or compose in unusual ways, among all the others.
TRICKY = "İıßẞſΐΰŉǰΣσςᾂᾳΆΐῼKÅµµᾀ̈́̈̄ͅǖ가각힣𝕬"
any_text = st.text(min_size=1, max_size=40)
tricky_text = st.text(st.sampled_from(TRICKY) | st.characters(codec="utf-8"), min_size=1)
texts_of_tags = (any_text | tricky_text).filter(is_tag)


@given(texts_of_tags)
def test_m4_the_tag_of_a_tag_is_that_tag(text: str) -> None:
    assert as_tag(as_tag(text)) == as_tag(text)


@given(texts_of_tags)
def test_m4_a_tag_is_nfc_and_folding_changes_nothing_in_it(text: str) -> None:
    tag = as_tag(text)

    assert unicodedata.is_normalized("NFC", tag)
    assert unicodedata.normalize("NFC", tag.casefold()) == tag


@given(texts_of_tags, st.sampled_from(["NFC", "NFD"]))
def test_m4_canonically_equal_words_are_one_tag(text: str, form: Any) -> None:
    assert as_tag(unicodedata.normalize(form, text)) == as_tag(text)


@given(texts_of_tags)
def test_m4_a_tag_fits_its_limit_and_holds_nothing_that_a_query_would_read(text: str) -> None:
    tag = as_tag(text)

    assert 1 <= len(tag.encode()) <= TAG_BYTES_MAX
    assert not any(char in OPERATORS or char.isspace() for char in tag)
    assert tag not in {"and", "or", "not"}


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("Goal", "goal"),
        ("ÉDER", "éder"),
        ("e\u0301der", "\u00e9der"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("ΣΑΣ", "σασ"),
        ("\u212aelvin", "kelvin"),  # the Kelvin sign is a K
        ("\u0130", "i\u0307"),
        ("50%", "50%"),
        ("#golo", "#golo"),
        ("a.b-c_d/e:f", "a.b-c_d/e:f"),
        ("日本", "日本"),
        ("👩‍🚀", "👩‍🚀"),
        ("andy", "andy"),
        ("nor", "nor"),
    ],
)
def test_m4_a_word_becomes_its_tag(text: str, tag: str) -> None:
    assert as_tag(text) == tag


@pytest.mark.parametrize("operator", ["&", "|", "!", "(", ")", ","])
@pytest.mark.parametrize("form", ["{}goal", "go{}al", "goal{}", "{}"])
def test_m4_a_tag_holds_no_operator(form: str, operator: str) -> None:
    with pytest.raises(TagError, match=r"holds no query operator") as caught:
        as_tag(form.format(operator))
    assert repr(operator) in str(caught.value)


@pytest.mark.parametrize("word", ["and", "or", "not", "AND", "Or", "nOT"])
def test_m4_an_operator_word_is_no_tag_in_any_case(word: str) -> None:
    with pytest.raises(TagError, match="is a query operator and cannot be a tag"):
        as_tag(word)


@pytest.mark.parametrize(
    "space",
    [" ", "\t", "\n", "\r", "\x0b", "\x85", "\u00a0", "\u1680", "\u2009", "\u2028", "\u3000"],
)
def test_m4_a_tag_holds_no_white_space(space: str) -> None:
    with pytest.raises(TagError, match=r"no white space.* at character 2 of 'go.+al'"):
        as_tag(f"go{space}al")


@pytest.mark.parametrize("char", ["\x00", "\x01", "\x1b", "\x7f", "\x80", "\x9f"])
def test_m4_a_tag_holds_no_control_character(char: str) -> None:
    with pytest.raises(TagError, match=r"no control character.* at character 4"):
        as_tag(f"goal{char}")


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_m4_a_lone_surrogate_is_refused_with_a_message_that_can_be_printed(code: int) -> None:
    with pytest.raises(TagError) as caught:
        as_tag(f"go{chr(code)}al")

    assert str(caught.value).encode("ascii")


def test_m4_an_empty_tag_is_refused() -> None:
    with pytest.raises(TagError, match="cannot be empty"):
        as_tag("")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x" * 128, 128),
        ("é" * 64, 128),
        ("日" * 42 + "ab", 128),
        ("ß" * 64, 128),  # ss: as long as before
        ("\u212a" * 128, 128),  # 384 bytes before folding, 128 after
        ("ŉ" * 42 + "ab", 128),  # 86 bytes before folding, 128 after
    ],
)
def test_m4_a_tag_has_at_most_128_bytes_once_folded(text: str, size: int) -> None:
    assert len(as_tag(text).encode()) == size


@pytest.mark.parametrize(
    "text",
    ["x" * 129, "é" * 64 + "x", "日" * 43, "ß" * 64 + "x", "ŉ" * 43, "\u212a" * 129, "x" * 10**6],
)
def test_m4_a_tag_of_129_bytes_once_folded_is_refused(text: str) -> None:
    with pytest.raises(TagError, match="at most 128 bytes"):
        as_tag(text)


def test_m4_the_limit_counts_the_normalised_tag_and_not_the_way_it_was_typed() -> None:
    """43 letters of 2 bytes; decomposed, the same tag has 129 characters."""
    composed = "ǖ" * 43

    assert as_tag(unicodedata.normalize("NFD", composed)) == as_tag(composed)


@pytest.mark.parametrize("thing", [None, 7, b"goal", 1.5, True, ("goal",), ["goal"], {"goal": 1}])
def test_m4_what_is_not_text_is_no_tag(thing: Any) -> None:
    with pytest.raises(TagError, match="a tag is text, not "):
        as_tag(thing)


def test_m2_an_objects_tags_are_sorted_and_each_there_once() -> None:
    assert as_tags(["goal", "Éder", "GOAL", "e\u0301der", "b"]) == ("b", "goal", "éder")


@given(st.lists(texts_of_tags, min_size=1, max_size=8))
def test_m2_tags_do_not_depend_on_the_order_or_number_of_times_they_are_given(
    words: list[str],
) -> None:
    tags = as_tags(words)

    assert as_tags([*reversed(words), *words]) == tags
    assert as_tags(tags) == tags
    check_tags(tags)


def test_m25_an_empty_set_of_tags_is_refused() -> None:
    with pytest.raises(TagError, match="needs at least one tag"):
        as_tags([])


def test_an_object_has_at_most_64_tags() -> None:
    words = [f"t{number}" for number in range(TAGS_PER_OBJECT_MAX)]

    assert len(as_tags([*words, words[0].upper()])) == TAGS_PER_OBJECT_MAX
    with pytest.raises(TagError, match="at most 64 tags, this one has 65"):
        as_tags([*words, "one-more"])


@pytest.mark.parametrize("words", ["goal", b"goal", None, 7, 1.5])
def test_m25_tags_that_are_not_a_list_of_words_are_refused(words: Any) -> None:
    with pytest.raises(TagError, match="tags are a list of words"):
        as_tags(words)


@pytest.mark.parametrize("words", [[None], [7], ["goal", b"x"], [["goal"]]])
def test_m25_a_list_with_something_else_than_words_is_refused(words: Any) -> None:
    with pytest.raises(TagError, match="a tag is text, not "):
        as_tags(words)


@pytest.mark.parametrize(
    "tags", [("b", "a"), ("a", "a"), ("A",), ("e\u0301",), (), ("a b",), ("",)]
)
def test_m25_tags_from_elsewhere_must_be_as_we_would_have_made_them(tags: tuple[str, ...]) -> None:
    with pytest.raises(TagError):
        check_tags(tuple(map(Tag, tags)))
