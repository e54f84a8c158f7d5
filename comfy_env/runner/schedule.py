"""Runs jobs in the order of their dependencies, those of different lanes at the same time, those of one lane in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter


def run(graph: Mapping[str, Sequence[str]], lane_of: Mapping[str, str], work: Callable[[str], None], stop: Callable[[], None]) -> None:
    """Call `work(id)` for each id of `graph`, after all it depends on; return when all are done.

    An exception of `work` or a KeyboardInterrupt here calls `stop()`, waits for what is running and is raised.
    """
    if not graph:
        return
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    with ThreadPoolExecutor(max_workers=len(set(lane_of.values())), thread_name_prefix="comfy-env-node") as threads:
        try:
            _drive(sorter, lane_of, lambda id: threads.submit(work, id))
        except BaseException:
            stop()
            raise


def _drive(sorter: TopologicalSorter[str], lane_of: Mapping[str, str], submit: Callable[[str], Future[None]]) -> None:
    waiting: list[str] = []
    running: dict[Future[None], str] = {}
    while sorter.is_active():
        waiting += sorter.get_ready()
        for id in list(waiting):
            if lane_of[id] not in {lane_of[busy] for busy in running.values()}:
                waiting.remove(id)
                running[submit(id)] = id
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            sorter.done(running.pop(future))
            future.result()
