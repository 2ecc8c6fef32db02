"""The self-test agrees with ns-3, and reports it if it does not (S3)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.validation import ns3_trials, reference
from thyme.sim.validation.selftest import (
    CONFIG_BY_PROFILE,
    SETS,
    SelfTestCase,
    all_passed,
    compare,
    make_cases,
    run_case,
    run_selftest,
    upper_quantile,
)


def case(set_name: str, **wanted: object) -> SelfTestCase:
    """The case of the quick self-test whose reference has these values."""
    [found] = [
        case
        for case in make_cases(quick=True, sets=[set_name])
        if all(getattr(case.expected, name) == value for name, value in wanted.items())
    ]
    return found


def differing(case: SelfTestCase) -> list[str]:
    """The comparisons that do not agree, as text."""
    return [
        f"{row.case}, {row.quantity}: ns-3 {row.reference:.3f}, ours {row.ours:.3f}"
        for row in run_case(case)
        if row.ok is False
    ]


@pytest.mark.parametrize(
    ("set_name", "wanted"),
    [
        ("a_bcast", {"per_second": 300}),
        ("b_ucast", {"per_second": 300}),
        ("c_chain", {"profile": "anchor", "payload_bytes": 1000, "per_second": 1000}),
        ("c_chain", {"profile": "cca_at_decode", "payload_bytes": 1000, "per_second": 1000}),
        ("e_replies", {"reply": "unicast", "jitter_us": 100_000}),
        ("e_replies", {"reply": "broadcast", "jitter_us": 1_000}),
    ],
)
def test_the_radio_agrees_with_ns3(set_name: str, wanted: dict[str, object]) -> None:
    assert differing(case(set_name, **wanted)) == []


@pytest.mark.parametrize("payload_bytes", [50, 300, 1000, 1472])
def test_the_share_that_arrives_at_a_distance_agrees_with_ns3(payload_bytes: int) -> None:
    links = reference.figures().links
    distances_m = [link.distance_m for link in links]

    shares = ns3_trials.broadcast_delivery_curve(distances_m, payload_bytes, count=4_000, seed=1)

    expected = [getattr(link, f"bcast{payload_bytes}") for link in links]
    assert shares == pytest.approx(expected, abs=0.05)


def test_unicasts_reach_further_because_they_are_repeated() -> None:
    links = [link for link in reference.figures().links if 108 <= link.distance_m <= 118]

    found = ns3_trials.unicast_delivery_curve(
        [link.distance_m for link in links], 300, count=1_000, seed=1
    )

    assert [share for share, _ in found] == pytest.approx(
        [link.unicast300 for link in links], abs=0.05
    )
    assert [transmissions for _, transmissions in found] == pytest.approx(
        [link.unicast300_transmissions for link in links], rel=0.1
    )


def test_a_radio_that_senses_too_little_fails_the_comparison() -> None:
    chain = case("c_chain", profile="anchor", payload_bytes=1000, per_second=200)

    hidden = ns3_trials.run_chain(1000, 200, seed=1, config=CONFIG_BY_PROFILE["cca_at_decode"])

    expected = chain.expected
    assert isinstance(expected, reference.ChainFigures)
    where = ("c_chain", "")
    assert not compare(
        where, "goodput", expected.goodput_per_second, hidden.goodput_per_second, 0.1
    ).ok
    assert not compare(
        where, "retransmissions", expected.retransmissions, hidden.retransmissions, 0.3
    ).ok


def test_a_radio_with_a_tenth_less_range_fails_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weak = RadioConfig(phy=Phy().with_range(100))
    monkeypatch.setattr("thyme.sim.validation.raw_replay.RadioConfig", lambda: weak)

    rows = run_case(case("a_bcast", per_second=100))

    assert [row.quantity for row in rows if not row.ok] == ["receivers per send"]
    assert not all_passed(rows)


def test_the_full_self_test_has_every_set_load_and_profile() -> None:
    full = make_cases()

    assert {case.set for case in full} == set(SETS)
    assert [len([c for c in full if c.set == name]) for name in SETS] == [5, 5, 48, 1, 8]
    assert {(case.set, len(case.seeds)) for case in full} == {
        ("a_bcast", 5),
        ("b_ucast", 5),
        ("c_chain", 1),
        ("c_chain", 10),
        ("link", 5),
        ("e_replies", 12),
    }


def test_the_quick_self_test_has_every_set_and_few_seeds() -> None:
    quick = make_cases(quick=True)

    assert {case.set for case in quick} == set(SETS)
    assert max(len(case.seeds) for case in quick) == 3


def test_the_reference_has_the_sends_that_its_figures_are_about() -> None:
    for load in reference.figures().loads:
        if load.per_second <= 300:
            sends = reference.sends(load)
            assert len(sends) == load.sends
            assert 1_000_000 <= sends[0].at_us <= sends[-1].at_us < 31_000_000
            assert {send.to == -1 for send in sends} == {load.set == "a_bcast"}
    assert len(reference.positions()) == 100


@pytest.mark.parametrize(
    ("expected", "ours", "relative", "deviation", "ok"),
    [
        (100.0, 109.0, True, 0.09, True),
        (100.0, 111.0, True, 0.11, False),
        (0.50, 0.59, False, 0.09, True),
        (0.50, 0.39, False, -0.11, False),
        (0.0, 0.2, True, 0.2, False),
    ],
)
def test_deviations_are_relative_or_plain(
    expected: float, ours: float, relative: bool, deviation: float, ok: bool
) -> None:
    row = compare(("set", "case"), "quantity", expected, ours, 0.1, relative=relative)

    assert row.deviation == pytest.approx(deviation)
    assert row.ok is ok


def test_what_is_only_reported_cannot_fail() -> None:
    row = compare(("set", "case"), "quantity", 1.0, 9.0, 0.1, judged=False)

    assert row.ok is None
    assert all_passed([row])
    assert not all_passed([row, msgspec.structs.replace(row, ok=False)])


def test_a_quantile_is_a_value_that_occurred() -> None:
    assert [upper_quantile([1, 2, 3, 4], share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 3, 4, 4]


def test_without_the_sends_the_error_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "figures.json").write_bytes(reference._read_bytes("figures.json"))
    monkeypatch.setattr(reference, "files", lambda _: tmp_path)

    with pytest.raises(reference.MissingReferenceError, match=r"source distribution thyme_store-"):
        run_selftest(quick=True)
