"""Columns of names (projects, files, rooms), held as numbers of distinct names: small, and tested once a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Labels:
    """Row r has the names `names[c]` for c in codes[indptr[r]:indptr[r + 1]]; names are distinct."""

    names: tuple[str, ...]
    indptr: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int32]

    @classmethod
    def of(cls, cells: Iterable[Iterable[str]]) -> Labels:
        """The labels of rows, given as the names of each."""
        numbers: dict[str, int] = {}
        fresh = count()
        codes: list[int] = []
        ends = [0]
        for cell in cells:
            for name in cell:
                if (code := numbers.get(name)) is None:
                    code = numbers[name] = next(fresh)
                codes.append(code)
            ends.append(len(codes))
        return cls(tuple(numbers), np.array(ends, np.int64), np.array(codes, np.int32))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def rows_with(self, test: Callable[[str], bool]) -> Mask:
        """[R] true where a name of the row passes."""
        verdicts = np.fromiter(map(test, self.names), np.bool_, len(self.names))
        mask = np.zeros(len(self), np.bool_)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        mask[rows[verdicts[self.codes]]] = True
        return mask
