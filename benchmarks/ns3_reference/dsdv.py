"""DSDV alone in ns-3: the rival of a whole scenario of ours.

The nodes have our radio (`radio`), IPv4 addresses and ns-3's own DSDV with its defaults: a full
dump every 15 s, news settles for 5 s. Nobody has anything to send but the routing itself, and only
`Simulator::Run` is timed. Needs the extra `ns3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ns3_reference.radio import compiled

DUMP_S = 15
"""How often a node sends all it knows: the periods the cost is measured in."""

DSDV = r"""
namespace thyme_rival {
using namespace ns3;

struct DsdvOutcome {
  std::vector<double> cpu_s;  // at the end of every period, from the start of the simulation
  std::vector<long> frames;   // likewise
};

static DsdvOutcome* progress = nullptr;
static long dsdv_frames = 0;
static double dsdv_began_s = 0;

static void CountFrame(Ptr<const Packet>, double) { dsdv_frames++; }

static void Mark() {
  progress->cpu_s.push_back(CpuSeconds() - dsdv_began_s);
  progress->frames.push_back(dsdv_frames);
}

DsdvOutcome RunDsdv(const std::vector<double>& x, const std::vector<double>& y, int period_s,
                    int periods, int run) {
  NodeContainer nodes;
  nodes.Create(x.size());
  NetDeviceContainer devices = MakeRadio(nodes, x, y, run);
  for (uint32_t i = 0; i < devices.GetN(); i++)
    DynamicCast<WifiNetDevice>(devices.Get(i))
        ->GetPhy()->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&CountFrame));
  DsdvHelper dsdv;
  InternetStackHelper internet;
  internet.SetRoutingHelper(dsdv);
  internet.Install(nodes);
  Ipv4AddressHelper addresses;
  addresses.SetBase("10.1.0.0", "255.255.0.0");
  addresses.Assign(devices);

  DsdvOutcome found;
  progress = &found;
  dsdv_frames = 0;
  for (int i = 1; i <= periods; i++) Simulator::Schedule(Seconds(i * period_s), &Mark);
  Simulator::Stop(Seconds(periods * period_s) + NanoSeconds(1));
  dsdv_began_s = CpuSeconds();
  Simulator::Run();
  Simulator::Destroy();
  return found;
}
}  // namespace thyme_rival
"""


class DsdvCost(NamedTuple):
    """What ns-3 took and sent, by the end of each period of 15 simulated seconds."""

    cpu_s: tuple[float, ...]
    frames: tuple[int, ...]

    @property
    def span_s(self) -> int:
        return DUMP_S * len(self.cpu_s)

    def cpu_s_per_second(self, first: int) -> float:
        """From the end of so many periods on, at least one."""
        return (self.cpu_s[-1] - self.cpu_s[first - 1]) / (self.span_s - DUMP_S * first)

    def cpu_s_of(self, seconds: int, first: int) -> float:
        """Of so many simulated seconds, those after the span at the rate after `first` periods."""
        return self.cpu_s[-1] + (seconds - self.span_s) * self.cpu_s_per_second(first)

    def frames_of(self, seconds: int, first: int) -> float:
        """Likewise."""
        rate = (self.frames[-1] - self.frames[first - 1]) / (self.span_s - DUMP_S * first)
        return self.frames[-1] + (seconds - self.span_s) * rate

    def cpu_s_by_period(self) -> list[float]:
        return [after - before for before, after in pairwise((0.0, *self.cpu_s))]


class Ns3Dsdv:
    """ns-3 with DSDV, loaded."""

    def __init__(self) -> None:
        self._rival = compiled(DSDV)

    def run(
        self, positions: Sequence[tuple[float, float]], periods: int, *, run: int = 1
    ) -> DsdvCost:
        """Runs so many periods, with one of ns-3's independent random runs."""
        xs, ys = zip(*positions, strict=True)
        found = self._rival.RunDsdv(list(xs), list(ys), DUMP_S, periods, run)
        return DsdvCost(tuple(found.cpu_s), tuple(found.frames))
