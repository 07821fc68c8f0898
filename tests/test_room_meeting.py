"""Spellings of one subject meet in one room of a project, whichever engine named it, and projects stay apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exchanges import make_exchange

from backfill.config import DistillConfig
from backfill.distill import distill
from backfill.types import Occurrence, PalaceObject
from backfill.visibility import derive_rooms
from tests.test_distill import Told
from tests.test_visibility import PLACE

ANSWERS = ("concept:auth", "concept:authentication", "concept:Auth", "concept:authn", "workflow:the_authenticated")


def made_with(room: str, number: int) -> PalaceObject:
    row = make_exchange(
        f"Case {number}: the auth and authentication of users, authenticated by authn.", "Auth works again."
    )
    wire = f'{{"c":"Auth and authentication of users works again.","x":0,"r":["{room}"]}}'
    (shard,) = distill([("s", [row])], DistillConfig(), fingerprint="f", engine=Told(lambda _: wire))
    (made,) = shard.objects
    assert made.tier == "llm"
    return made


def place_of(made: PalaceObject, project: str = "p") -> list[Occurrence]:
    return [replace(PLACE, exchange_id=made.exchange_id, project=project)]


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_spelling_has_the_key_auth(answer: str) -> None:
    assert [room.room_key for room in made_with(answer, 0).room_assignments] == ["auth"]


def test_they_meet_in_one_room_of_a_project() -> None:
    objects = {made.exchange_id: made for n, answer in enumerate(ANSWERS[:3]) for made in [made_with(answer, n)]}
    (room,) = derive_rooms(objects, {xid: place_of(made) for xid, made in objects.items()})
    assert (room.room_key, room.room_label, room.n_exchanges) == ("auth", "Auth", 3)
    apart = {xid: place_of(made, f"p{n}") for n, (xid, made) in enumerate(objects.items())}
    assert len(derive_rooms(objects, apart)) == 3
