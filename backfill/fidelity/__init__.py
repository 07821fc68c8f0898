"""Fidelity: the handles of a text (names, numbers, paths) and whether a distilled object keeps to its source."""
