"""What values of options may be: each function is the `type` of an argument, or makes one. A wrong value ends with exit code 2."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from inbound.config.units import shown

T = TypeVar("T")


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return `parse`, whose ValueError is what argparse prints."""

    def value(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def amount(lowest: float, highest: float, need: str, unit: str = "") -> Callable[[str], float]:
    """Return the type of a number between the two; `need` is what the error asks for, `unit` may stand behind it."""

    def value(text: str) -> float:
        try:
            found = float(text.removesuffix(unit))
        except ValueError:
            found = math.nan
        if not lowest <= found <= highest:
            raise argparse.ArgumentTypeError(f"need {need}, got {shown(text)}")
        return found

    return value


def whole(lowest: int, highest: int, need: str) -> Callable[[str], int]:
    """Return the type of a whole number between the two; `need` is what the error asks for."""

    def value(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"need {need}, got {shown(text)}")
        return int(text)

    return value


#: How often something is shown again.
repeat_interval = amount(0.1, 86400.0, "seconds between 0.1 and 86400")
offset_number = whole(0, 10**18 - 1, "an offset: a whole number from 0 on")


def partition_numbers(text: str) -> tuple[int, ...]:
    """Return the partitions of `0,3-5`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = (first, last if dash else first)
        if not all(number.isascii() and number.isdecimal() and len(number) < 7 for number in numbers):
            raise argparse.ArgumentTypeError(f"need numbers of partitions such as 0,3-5, got {shown(text)}")
        if int(numbers[0]) > int(numbers[1]):
            raise argparse.ArgumentTypeError(f"need the smaller one first in {part.strip()!r}")
        found |= set(range(int(numbers[0]), int(numbers[1]) + 1))
    return tuple(sorted(found))
