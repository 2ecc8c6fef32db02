"""Downloads at a station, from the workloads of the documents: which object is asked for when.

The trace is executed perfectly (`expected_notifications`); each notified user downloads the object
or not, after a delay (`RetrieveBehaviour`). Nobody downloads an object twice, or an own one.
"""

from __future__ import annotations

from collections import defaultdict

from thyme.traces.oracle import expected_notifications
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES
from thyme.traces.synthetic.football_match import FootballMatch
from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace
from thyme.traces.trace import Trace


def lecture_downloads(seed: int) -> list[int]:
    """The class of the thesis, 100 students."""
    return _downloads(lecture_trace(seed, LectureConfig()), seed)


def match_downloads(seed: int) -> list[int]:
    """The football match of the journal article, 100 users."""
    return _downloads(trace_from_posts(seed, FootballMatch(seed), users=100), seed)


def _downloads(trace: Trace, seed: int) -> list[int]:
    numbers: dict[str, int] = defaultdict(lambda: len(numbers))
    first_us: dict[tuple[int, str], int] = {}
    for note in expected_notifications(trace):
        if note.user != note.owner:
            first_us.setdefault((note.user, note.oid), note.at_us)
    downloads = []
    for (user, oid), at_us in first_us.items():
        delay_us = LECTURE_RETRIEVES.delay_us(seed, user, oid)
        if delay_us is not None:
            downloads.append((at_us + delay_us, user, numbers[oid]))
    return [number for _, _, number in sorted(downloads)]
