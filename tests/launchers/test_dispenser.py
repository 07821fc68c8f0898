"""The dispenser: no shard is lost and none is finished twice, whatever workers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backfill.launchers.dispenser import Dispenser

WORKERS = ("a", "b", "c")


def test_what_a_dead_worker_held_goes_first() -> None:
    dispenser = Dispenser([5, 3, 8, 1])
    assert [dispenser.take("a"), dispenser.take("a"), dispenser.take("b")] == [5, 3, 8]
    assert dispenser.release("a") == [3, 5]
    assert [dispenser.take("b") for _ in range(4)] == [3, 5, 1, None]
    assert dispenser.held("b") == [1, 3, 5, 8]


def test_a_retired_worker_gets_nothing_more() -> None:
    dispenser = Dispenser([1, 2])
    dispenser.take("a")
    assert dispenser.retire("a") == [1]
    assert dispenser.take("a") is None
    assert dispenser.take("b") == 1


def test_late_work_of_a_retired_worker_counts_once() -> None:
    dispenser = Dispenser([1])
    dispenser.take("a")
    dispenser.retire("a")
    dispenser.finish("a", 1, {"n": 1})
    assert dispenser.take("b") is None, "the shard is done, late or not"
    dispenser.finish("b", 1, {"n": 1})
    assert dispenser.news() == [("a", 1, {"n": 1})]


def test_after_a_stop_nothing_is_handed_out() -> None:
    dispenser = Dispenser([1])
    dispenser.stop()
    assert (dispenser.take("a"), dispenser.stopped(), dispenser.left()) == (None, True, 1)


@given(st.lists(st.tuples(st.sampled_from(["take", "finish", "die"]), st.sampled_from(WORKERS)), max_size=60))
def test_every_shard_is_somewhere(steps: list[tuple[str, str]]) -> None:
    shards = list(range(6))
    dispenser = Dispenser(shards)
    published: list[int] = []
    for step, worker in steps:
        if step == "take":
            dispenser.take(worker)
        elif step == "die":
            dispenser.release(worker)
        elif held := dispenser.held(worker):
            dispenser.finish(worker, held[0], {})
        published += [shard for _, shard, _ in dispenser.news()]
        in_hand = [shard for each in WORKERS for shard in dispenser.held(each)]
        assert len(published) + len(in_hand) + dispenser.left() == len(shards)
        assert len(set(published)) == len(published)
    while (shard := dispenser.take("d")) is not None:
        dispenser.finish("d", shard, {})
    for worker in WORKERS:
        dispenser.release(worker)
    while (shard := dispenser.take("d")) is not None:
        dispenser.finish("d", shard, {})
    assert sorted(published + [shard for _, shard, _ in dispenser.news()]) == shards
