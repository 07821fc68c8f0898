"""Links of a segment: sessions by number, claims by document."""

from __future__ import annotations

from backfill.links import claim_links, session_number, session_numbers


def test_a_session_has_one_number_everywhere():
    numbers = session_numbers([("codex", "s1"), ("claude_code", "s1"), ("codex", "s1")])
    assert numbers[0] == numbers[2] == session_number("codex", "s1")
    assert numbers[0] != numbers[1]
    assert len(session_numbers([])) == 0


def test_claims_point_at_documents_or_give_the_ids_of_others():
    one, two, far = b"\1" * 16, b"\2" * 16, b"\0" * 16
    links = claim_links([(two,), (), (far, one)], {one: 0, two: 1})
    assert links["claim_indptr"].tolist() == [0, 1, 1, 3]
    assert links["claim_doc"].tolist() == [1, -1, 0]
    assert links["claim_far"].tobytes() == far
    assert claim_links([], {})["claim_far"].shape == (0, 16)
