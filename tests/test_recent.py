"""The cache of what was used last: bounded by weight, the oldest first to go."""

from __future__ import annotations

from backfill.recent import Recent


def test_the_least_recently_used_goes_first():
    recent: Recent[str] = Recent(3)
    for key in "abc":
        recent.put(key, key.upper(), 1)
    assert recent.get("a") == "A"
    recent.put("d", "D", 1)
    assert [recent.get(key) for key in "abcd"] == ["A", None, "C", "D"]


def test_weights_never_pass_the_limit():
    recent: Recent[int] = Recent(10)
    recent.put("small", 1, 4)
    recent.put("too heavy", 2, 11)
    assert (recent.get("too heavy"), recent.get("small"), recent.weight) == (None, 1, 4)
    recent.put("small", 3, 7)
    assert (recent.weight, len(recent)) == (7, 1)
    recent.put("other", 4, 6)
    assert (recent.get("small"), recent.get("other"), recent.weight) == (None, 4, 6)
