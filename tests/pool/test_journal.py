"""The journal of a pool is its user's alone."""

from comfy_env.pool import WorkerPool


def test_the_journal_and_the_stories_left_behind_are_readable_by_this_user_only(settings, plan):
    with WorkerPool(settings) as pool:
        assert pool.call(plan, "jobs:add", 1, 1) == 2
        pool.tick()
        (journal,) = settings.runtime_folder.glob("host-*/journal.json")
        assert journal.stat().st_mode & 0o777 == 0o600
    left = list((settings.runtime_folder / "stories").iterdir())
    assert left and {path.stat().st_mode & 0o777 for path in left} == {0o600}
