"""The one cache of what was decided."""

from __future__ import annotations

import threading

import pytest

from engine.core.lru import LRU


def test_the_keys_that_were_used_last_are_there() -> None:
    cache: LRU[int, str] = LRU(4)
    for n in range(100):
        cache[n] = str(n)
        assert cache.get(0) == "0"  # used all the time
        assert all(cache.get(m) == str(m) for m in range(max(0, n - 2), n + 1))
        assert len(cache) <= 8
    assert cache.get(50) is None and 50 not in cache and 99 in cache


def test_a_key_that_is_stored_again_takes_no_place() -> None:
    cache: LRU[str, int] = LRU(2)
    cache["a"] = cache["b"] = 1
    for n in range(10):
        cache["b"] = n
    assert cache.get("a") == 1 and cache.get("b") == 9 and sorted(cache) == ["a", "b"]


def test_the_young_generation_is_one_dict_for_good() -> None:
    cache: LRU[int, int] = LRU(2)
    young = cache.young
    for n in range(9):
        cache[n] = n
        assert cache.young is young and young.get(n) == n
    cache.clear()
    assert not young and not len(cache) and cache.values() == []


def test_a_value_is_made_once_while_it_is_there() -> None:
    cache: LRU[str, list[int]] = LRU(2)
    assert cache.made("a", lambda: [1]) is cache.made("a", lambda: [2])
    with pytest.raises(TypeError):
        cache.get([])  # type: ignore[arg-type]


def test_threads_see_values_of_their_keys_or_none() -> None:
    cache: LRU[int, int] = LRU(8)
    wrong: list[object] = []

    def use(seed: int) -> None:
        for n in range(3000):
            key = (n * seed) % 40
            found = cache.get(key)
            if found is None:
                cache[key] = -key
            elif found != -key:
                wrong.append((key, found))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 3, 7, 11)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and len(cache) <= 16 + len(threads)
