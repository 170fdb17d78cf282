"""Needles: a five-digit number stated once in a long text and asked for at its end.

The same forms are used in training and by the needle instrument, so that a miss is a fault of the engine and not of an
unfamiliar question. The answer is the five digits alone (five tokens: the tokenizer splits digits).
"""

from typing import Final

DIGITS: Final = 5
LANGUAGES: Final = ("en", "ja", "code")

# statement before and after the digits, question up to the digits
_FORMS: Final = {
    "en": (
        "\n\nThe access code of the north archive is ",
        ". Keep this number in mind.\n\n",
        "\n\nQuestion: What is the access code of the north archive?\nAnswer: The access code of the north archive is ",
    ),
    "ja": (
        "\n\n北の書庫の暗証番号は",
        "です。この番号を覚えておいてください。\n\n",
        "\n\n質問：北の書庫の暗証番号は何番ですか。\n答え：北の書庫の暗証番号は",
    ),
    "code": (
        "\n\n\nARCHIVE_ACCESS_CODE = ",
        "  # keep this number\n\n\n",
        "\n\n\n# What is the value of ARCHIVE_ACCESS_CODE?\nassert ARCHIVE_ACCESS_CODE == ",
    ),
}


def needle(language: str, digits: str) -> tuple[str, str]:
    """Statement to hide in a text, and the question after which a model has to continue with ``digits``.

    Raises ``KeyError`` for an unknown language and ``ValueError`` unless ``digits`` is five ASCII digits.
    """
    if len(digits) != DIGITS or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"a needle hides {DIGITS} ASCII digits, not {digits!r}")
    before, after, question = _FORMS[language]
    return before + digits + after, question
