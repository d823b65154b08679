"""The bound on maps, and which maps are kept."""

from __future__ import annotations

import weakref

import pytest

from flintlog.disk.media.map_cache import LOOKS_PER_MAP, MapCache


class Page:
    def __init__(self, is_idle: bool = True) -> None:
        self.recently_used = False
        self.is_idle = is_idle
        self.is_mapped = True

    def try_unmap(self) -> bool:
        self.is_mapped = self.is_mapped and not self.is_idle
        return self.is_idle


def test_the_bound_is_kept() -> None:
    cache = MapCache(max_maps=3)
    pages = [Page() for _ in range(10)]
    for page in pages:
        cache.add(page)
        assert len(cache) <= 3
    assert [page.is_mapped for page in pages] == [False] * 7 + [True] * 3


def test_a_map_that_was_used_gets_a_second_chance() -> None:
    cache = MapCache(max_maps=3)
    pages = [Page() for _ in range(3)]
    for page in pages:
        cache.add(page)
        page.recently_used = False
    pages[0].recently_used = True
    newest = Page()
    cache.add(newest)
    assert [page.is_mapped for page in pages] == [True, False, True]


def test_maps_in_use_stay_beyond_the_bound() -> None:
    cache = MapCache(max_maps=2)
    busy = [Page(is_idle=False) for _ in range(4)]
    for page in busy:
        cache.add(page)
    assert len(cache) == 4
    assert all(page.is_mapped for page in busy)
    for page in busy:
        page.is_idle = True
    newest = Page()
    cache.add(newest)
    assert len(cache) == 2


def test_the_newest_is_never_the_one_to_go() -> None:
    cache = MapCache(max_maps=1)
    for _ in range(3):
        page = Page()
        cache.add(page)
        assert page.is_mapped


def test_what_was_destroyed_is_forgotten() -> None:
    cache = MapCache(max_maps=2)
    page = Page()
    cache.add(page)
    cache.discard(page)
    cache.discard(page)
    assert len(cache) == 0


def test_the_cache_keeps_nothing_alive() -> None:
    cache = MapCache(max_maps=3)
    page = Page()
    reference = weakref.ref(page)
    cache.add(page)
    del page
    assert reference() is None
    kept = [Page() for _ in range(3)]
    for each in kept:
        cache.add(each)
    assert len(cache) == 3
    assert all(each.is_mapped for each in kept), "the dead one went first"


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_maps"):
        MapCache(max_maps=0)


class CountedPage(Page):
    looks = 0

    def try_unmap(self) -> bool:
        type(self).looks += 1
        return super().try_unmap()


def test_a_map_costs_the_same_however_many_refuse_to_go() -> None:
    cache = MapCache(max_maps=10)
    pages = [CountedPage(is_idle=False) for _ in range(2_000)]
    for page in pages:
        cache.add(page)
    assert CountedPage.looks <= LOOKS_PER_MAP * len(pages)
    assert len(cache) == len(pages)


def test_idle_maps_are_found_among_many_that_refuse() -> None:
    cache = MapCache(max_maps=400)
    busy = [Page(is_idle=False) for _ in range(400)]
    idle = [Page() for _ in range(2_000)]
    for page in busy + idle:
        cache.add(page)
    assert len(cache) <= 500
    assert all(page.is_mapped for page in busy)
