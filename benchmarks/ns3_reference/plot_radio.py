"""Draws docs/images/radio-ns3.svg: our radio (lines) over ns-3's figures (dots).

Four pictures: what arrives by distance, receivers per broadcast by load, delays of unicasts by
load, and what a chain carries. Needs matplotlib (the extra `report`); takes about a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

from thyme.sim.validation import ns3_trials, reference
from thyme.sim.validation.raw_replay import replay_sends
from thyme.sim.validation.selftest import CONFIG_BY_PROFILE, upper_quantile

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "radio-ns3.svg"
COLOURS = ("#0b6e4f", "#c8553d", "#28536b", "#b58900")
PAYLOADS = (50, 300, 1000, 1472)
CHAIN_RATES = (100, 200, 300, 400, 450, 500, 600, 1000)


def draw_link(axes: Any) -> None:
    """What arrives, by distance and payload."""
    links = [link for link in reference.figures().links if 96 <= link.distance_m <= 124]
    distances_m = [link.distance_m for link in links]
    for colour, payload_bytes in zip(COLOURS, PAYLOADS, strict=True):
        ours = ns3_trials.broadcast_delivery_curve(distances_m, payload_bytes, count=20_000, seed=1)
        theirs = [getattr(link, f"bcast{payload_bytes}") for link in links]
        axes.plot(distances_m, ours, color=colour, label=f"{payload_bytes} bytes")
        axes.plot(distances_m, theirs, "o", color=colour, markersize=3.5)
    axes.set(title="Broadcasts that arrive", xlabel="distance, m", ylabel="share")
    axes.legend(title="payload")


def draw_loads(receivers: Any, delays: Any) -> None:
    """Receivers per broadcast and delays of unicasts, by load."""
    positions = reference.positions()
    ours: dict[str, list[list[float]]] = {"a_bcast": [], "b_ucast": []}
    loads = reference.figures().loads
    for load in loads:
        result = replay_sends(positions, reference.sends(load), seed=1)
        late = result.delays_us()
        figures = [fmean(late), upper_quantile(late, 0.95), upper_quantile(late, 0.99)]
        ours[load.set].append([result.receptions / load.sends, *(us / 1000 for us in figures)])
    broadcasts = [load for load in loads if load.set == "a_bcast"]
    unicasts = [load for load in loads if load.set == "b_ucast"]
    rates = [load.per_second for load in broadcasts]
    receivers.plot(rates, [row[0] for row in ours["a_bcast"]], color=COLOURS[0])
    receivers.plot(rates, [load.receivers for load in broadcasts], "o", color=COLOURS[0])
    receivers.set(
        title="Receivers of a broadcast, 100 nodes", xlabel="broadcasts per second", ylabel="nodes",
        ylim=(30, 34),
    )  # fmt: skip
    for place, (colour, name) in enumerate(zip(COLOURS, ("mean", "p95", "p99"), strict=False), 1):
        theirs = [getattr(load, f"delay_{name}_us") / 1000 for load in unicasts]
        delays.plot(rates, [row[place] for row in ours["b_ucast"]], color=colour, label=name)
        delays.plot(rates, theirs, "o", color=colour, markersize=4.5)
    delays.set(title="Delay of unicasts, 100 nodes", xlabel="unicasts per second", ylabel="ms")
    delays.legend()


def draw_chain(axes: Any) -> None:
    """What five nodes in a line carry from end to end."""
    styles = zip(COLOURS, [(p, b) for b in (300, 1000) for p in CONFIG_BY_PROFILE], strict=True)
    for colour, (profile, payload_bytes) in styles:
        chains = [
            chain
            for chain in reference.figures().chains
            if (chain.profile, chain.payload_bytes) == (profile, payload_bytes)
            and chain.per_second in CHAIN_RATES
        ]
        rates = [chain.per_second for chain in chains]
        ours = [
            ns3_trials.run_chain(
                payload_bytes, rate, seed=1, config=CONFIG_BY_PROFILE[profile]
            ).goodput_per_second
            for rate in rates
        ]
        sense = "hears far" if profile == "anchor" else "hidden nodes"
        axes.plot(rates, ours, color=colour, label=f"{payload_bytes} bytes, {sense}")
        axes.plot(rates, [chain.goodput_per_second for chain in chains], "o", color=colour,
                  markersize=4)  # fmt: skip
    axes.set(title="Chain of five nodes", xlabel="offered per second", ylabel="arrived per second")
    axes.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "svg.hashsalt": "thyme",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "legend.frameon": False,
            "axes.titlesize": 10,
        }
    )
    figure, ((link, receivers), (delays, chain)) = pyplot.subplots(2, 2, figsize=(9, 6.6))
    draw_link(link)
    draw_loads(receivers, delays)
    draw_chain(chain)
    figure.suptitle("Our radio (lines) and ns-3.44 (dots)", fontsize=11)
    figure.tight_layout()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
