"""Results: how an operation ended, as one value.

Entry points: `Ok`, `Failure` and `Result`, their union. An operation takes one callback,
`OnResult[T]`, and calls it once with the result and the time. An operation without a value of its
own takes an `OnResult[object]`, which accepts the result of any request.
Clauses: M9, M25.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from thyme.model.errors import ThymeError

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")


class Ok(msgspec.Struct, Generic[T_co], frozen=True):
    """An operation succeeded with a value."""

    value: T_co

    def map(self, convert: Callable[[T_co], U]) -> Ok[U]:
        """The same success with a converted value."""
        return Ok(convert(self.value))


class Failure(msgspec.Struct, frozen=True):
    """An operation failed: the code of an error class in `model.errors`, and a detail text."""

    code: str
    detail: str

    @classmethod
    def from_error(cls, error: ThymeError) -> Failure:
        """The failure that an error stands for."""
        return cls(error.code, str(error))

    def map(self, convert: Callable[..., object]) -> Failure:
        """The failure itself: there is no value to convert."""
        return self


Result = Ok[T] | Failure
OnResult = Callable[[Result[T], int], None]
"""Called once, with the result of an operation and the time."""


def ignore_result(result: Result[object], now_us: int) -> None:
    """Does nothing: the sender takes no action if the operation fails."""
