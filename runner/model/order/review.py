"""What reviewers claim about an order, what arithmetic says to it, and what was ruled. Votes are in none of it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runner.model.base import Record, Slug
from runner.model.scalars import Line, Number, Whole


class ReviewClaim(Record):
    """One figure that one reviewer stands for."""

    question: Slug
    value: Number
    unit: Line
    evidence: Line
    """File and line, command, or the reckoning itself."""
    confidence: Literal["low", "medium", "high"]


class Review(Record):
    """All that one reviewer says, looking through one lens."""

    reviewer: Line
    lens: Line
    claims: tuple[ReviewClaim, ...]
    deviations: tuple[Line, ...] = ()
    """Where the session differed from what the order asks for, and why."""

    @model_validator(mode="after")
    def _one_answer_a_question(self) -> Self:
        names = [claim.question for claim in self.claims]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{self.reviewer} answers {name!r} twice")
        return self


class DividesCheck(Record):
    """The answer is a whole number that divides every count: steps divide each kernel's launches."""

    kind: Literal["divides"]
    question: Slug
    counts: Annotated[dict[Slug, Whole], Field(min_length=1)]
    evidence: Line


class EqualsCheck(Record):
    """The answer is what an expression over known figures gives: bytes, ratios, products."""

    kind: Literal["equals"]
    question: Slug
    expression: Line
    names: dict[Slug, Number] = {}
    """Figures of the expression; a dash in a name is written ``_`` there."""
    tolerance: Number = "1e-9"
    """Largest relative difference."""
    evidence: Line


Check = Annotated[DividesCheck | EqualsCheck, Field(discriminator="kind")]


class ReviewRuling(Record):
    """A question somebody decided, with what it was decided on."""

    question: Slug
    value: Number
    unit: Line | None = None
    """Has to be said where the answers are in different units and the value is none of theirs alone."""
    by: Line
    evidence: Line


class ReviewFile(Record):
    """One file of reviews of one version of an order."""

    schema_version: Annotated[Whole, Field(ge=1, le=1)]
    order: Slug
    version: Whole
    """The version that was reviewed."""
    reviews: tuple[Review, ...] = ()
    checks: tuple[Check, ...] = ()
    rulings: tuple[ReviewRuling, ...] = ()

    @model_validator(mode="after")
    def _asked_before_answered(self) -> Self:
        asked = {claim.question for review in self.reviews for claim in review.claims}
        for part in (*self.checks, *self.rulings):
            if part.question not in asked:
                raise ValueError(f"nobody claims anything about {part.question!r}")
        ruled = [ruling.question for ruling in self.rulings]
        for name in ruled:
            if ruled.count(name) > 1:
                raise ValueError(f"{name!r} is ruled twice")
        return self


__all__ = ["Check", "DividesCheck", "EqualsCheck", "Review", "ReviewClaim", "ReviewFile", "ReviewRuling"]
