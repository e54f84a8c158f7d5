"""The table's recorder, the count every row must show, and pools whose workers carry faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.recorder import Fired, Recorder, rows_of
from tests.faults.ward import Ward

FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config), "reliability recorder")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.outcome != "passed"
    return report


@pytest.fixture(autouse=True)
def fired(request: pytest.FixtureRequest) -> Iterator[Fired]:
    """What a row's test counts its faults with; a row that fired none has shown nothing and fails."""
    fired = Fired(request.node)
    yield fired
    fired.record()
    if rows_of(request.node) and not fired.count and not request.node.stash.get(FAILED, False):
        pytest.fail("no fault was fired, so this row shows nothing", pytrace=False)


@pytest.fixture
def ward(tmp_path) -> Iterator[Ward]:
    """A pool with patient limits whose workers carry faults; see `ward.Ward`."""
    with Ward(tmp_path) as ward:
        yield ward


@pytest.fixture
def make_ward(tmp_path) -> Iterator[Callable[..., Ward]]:
    """`make_ward(**settings)` gives a ward with other settings; all are closed with the test."""
    made: list[Ward] = []

    def make(**more: object) -> Ward:
        made.append(Ward(tmp_path / str(len(made)), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()
