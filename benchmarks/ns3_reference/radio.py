"""The same sends in ns-3: the rival of our radio, set up exactly as the reference was.

The scenario is C++, compiled in this process through ns-3's Python bindings (the `ns3` package),
so that what is timed is ns-3 and nothing else: frames are handed to the Wi-Fi device directly, with
no IP stack above it. 802.11g ad hoc, everything at 6 Mb/s; docs/simulator.md lists the parameters.
The radio's set-up is a text of its own, which `dsdv` shares.
Needs the extra `ns3`; loading takes about a quarter of a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from thyme.sim.validation.raw_replay import RawSend

RADIO = r"""
#include <cstring>
#include <ctime>
#include <vector>

namespace thyme_rival {
using namespace ns3;

static NetDeviceContainer MakeRadio(const NodeContainer& nodes, const std::vector<double>& x,
                                    const std::vector<double>& y, int run) {
  RngSeedManager::SetSeed(1);
  RngSeedManager::SetRun(run);
  Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize("100p")));
  Config::SetDefault("ns3::WifiMacQueue::MaxDelay", TimeValue(MilliSeconds(500)));

  MobilityHelper mobility;
  Ptr<ListPositionAllocator> places = CreateObject<ListPositionAllocator>();
  for (size_t i = 0; i < x.size(); i++) places->Add(Vector(x[i], y[i], 0));
  mobility.SetPositionAllocator(places);
  mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
  mobility.Install(nodes);

  YansWifiChannelHelper channel;
  channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
  channel.AddPropagationLoss("ns3::LogDistancePropagationLossModel", "Exponent", DoubleValue(3),
                             "ReferenceDistance", DoubleValue(1), "ReferenceLoss",
                             DoubleValue(46.6777));
  YansWifiPhyHelper phy;
  phy.SetChannel(channel.Create());
  phy.Set("ChannelSettings", StringValue("{1, 20, BAND_2_4GHZ, 0}"));
  phy.Set("TxPowerStart", DoubleValue(17.318));
  phy.Set("TxPowerEnd", DoubleValue(17.318));
  phy.Set("RxNoiseFigure", DoubleValue(7));
  phy.Set("RxSensitivity", DoubleValue(-101));
  phy.Set("CcaSensitivity", DoubleValue(-99));
  phy.Set("CcaEdThreshold", DoubleValue(-99));
  phy.SetErrorRateModel("ns3::NistErrorRateModel");
  phy.SetPreambleDetectionModel("ns3::ThresholdPreambleDetectionModel", "MinimumRssi",
                                DoubleValue(-96), "Threshold", DoubleValue(-100));
  WifiMacHelper mac;
  mac.SetType("ns3::AdhocWifiMac", "QosSupported", BooleanValue(false));
  WifiHelper wifi;
  wifi.SetStandard(WIFI_STANDARD_80211g);
  StringValue mode("ErpOfdmRate6Mbps");
  wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager", "DataMode", mode, "ControlMode",
                               mode, "NonUnicastMode", mode, "RtsCtsThreshold",
                               UintegerValue(1500));
  return wifi.Install(phy, mac, nodes);
}

static double CpuSeconds() { return double(std::clock()) / CLOCKS_PER_SEC; }
}  // namespace thyme_rival
"""
"""Places nodes and gives them our radio: channel, physical layer and MAC."""

SENDS = r"""
namespace thyme_rival {
using namespace ns3;

struct Outcome {
  std::vector<int> receivers;
  std::vector<double> delay_us;  // of every reception
  long frames = 0, retransmissions = 0;
  double cpu_s = 0;
};

struct Plan {
  std::vector<double> x, y;
  std::vector<long> at_us;
  std::vector<int> source, to, bytes;
};

static Outcome* outcome = nullptr;
static const Plan* plan = nullptr;
static std::vector<Ptr<NetDevice>>* devices = nullptr;

static void Send(int number) {
  std::vector<uint8_t> data(plan->bytes[number] + 28, 0);  // UDP and IPv4 headers
  std::memcpy(data.data(), &number, sizeof number);
  int to = plan->to[number];
  Ptr<NetDevice> device = (*devices)[plan->source[number]];
  device->Send(Create<Packet>(data.data(), data.size()),
               to < 0 ? device->GetBroadcast() : (*devices)[to]->GetAddress(), 0x0800);
  if (number + 1 < (int)plan->at_us.size())
    Simulator::Schedule(MicroSeconds(plan->at_us[number + 1] - plan->at_us[number]), &Send,
                        number + 1);
}

static bool Receive(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&) {
  int number = 0;
  packet->CopyData((uint8_t*)&number, sizeof number);
  outcome->receivers[number]++;
  outcome->delay_us.push_back(Simulator::Now().GetNanoSeconds() / 1e3 - plan->at_us[number]);
  return true;
}

static void Transmit(Ptr<const Packet> packet, double) {
  WifiMacHeader header;
  packet->PeekHeader(header);
  outcome->frames++;
  if (header.IsData() && header.IsRetry()) outcome->retransmissions++;
}

// Corrects ns-3's carrier sense: each report of a busy medium replaces the previous one in its MAC,
// even if it ends sooner; this listener, called after the MAC's, repeats the longest report.
class LongestReport : public WifiPhyListener {
 public:
  explicit LongestReport(Ptr<ChannelAccessManager> manager) : m_manager(manager) {}
  void NotifyCcaBusyStart(Time duration, WifiChannelListType type,
                          const std::vector<Time>& durations) override {
    Time end = Simulator::Now() + duration;
    if (type != WIFI_CHANLIST_PRIMARY) return;
    if (end < m_end)
      m_manager->NotifyCcaBusyStartNow(m_end - Simulator::Now(), type, durations);
    else
      m_end = end;
  }
  void NotifyRxStart(Time) override {}
  void NotifyRxEndOk() override {}
  void NotifyRxEndError() override {}
  void NotifyTxStart(Time, dBm_u) override {}
  void NotifySwitchingStart(Time) override {}
  void NotifySleep() override {}
  void NotifyOff() override {}
  void NotifyWakeup() override {}
  void NotifyOn() override {}

 private:
  Ptr<ChannelAccessManager> m_manager;
  Time m_end;
};

Outcome Run(const Plan& given, int run, bool longest_report) {
  NodeContainer nodes;
  nodes.Create(given.x.size());
  NetDeviceContainer made = MakeRadio(nodes, given.x, given.y, run);
  std::vector<Ptr<NetDevice>> all;
  std::vector<std::shared_ptr<WifiPhyListener>> listeners;
  for (uint32_t i = 0; i < made.GetN(); i++) {
    all.push_back(made.Get(i));
    made.Get(i)->SetReceiveCallback(MakeCallback(&Receive));
    DynamicCast<WifiNetDevice>(made.Get(i))
        ->GetPhy()->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&Transmit));
    if (longest_report) {
      Ptr<WifiNetDevice> device = DynamicCast<WifiNetDevice>(made.Get(i));
      listeners.push_back(
          std::make_shared<LongestReport>(device->GetMac()->GetChannelAccessManager()));
      device->GetPhy()->RegisterListener(listeners.back());
    }
  }

  Outcome found;
  found.receivers.assign(given.at_us.size(), 0);
  outcome = &found;
  plan = &given;
  devices = &all;
  Simulator::Schedule(MicroSeconds(given.at_us.front()), &Send, 0);
  Simulator::Stop(MicroSeconds(given.at_us.back() + 1000000));
  double began_s = CpuSeconds();
  Simulator::Run();
  found.cpu_s = CpuSeconds() - began_s;
  Simulator::Destroy();
  return found;
}
}  // namespace thyme_rival
"""


class Ns3Result(NamedTuple):
    """What ns-3 made of the sends."""

    receivers: list[int]
    """For each send."""
    delays_us: list[float]
    """Of each reception, in order of size."""
    frames: int
    retransmissions: int
    cpu_s: float
    """Of the simulation alone, without its set-up: on a busy machine fairer than the wall's."""


def installed() -> bool:
    """Whether the `ns3` package is there."""
    return find_spec("ns") is not None and find_spec("cppyy") is not None


@cache
def compiled(scenario: str) -> Any:
    """ns-3, loaded, with the radio and a scenario on it: what their namespace holds."""
    from ns import ns  # type: ignore[import-not-found]

    assert ns.WifiHelper  # loads the libraries
    import cppyy  # type: ignore[import-not-found]

    if scenario != RADIO:
        compiled(RADIO)
    cppyy.cppdef(scenario)
    return cppyy.gbl.thyme_rival


class Ns3:
    """ns-3, loaded."""

    def __init__(self) -> None:
        self._rival = compiled(SENDS)

    def run(
        self,
        positions: Sequence[tuple[float, float]],
        sends: Sequence[RawSend],
        *,
        run: int = 1,
        longest_report: bool = False,
    ) -> Ns3Result:
        """Runs sends, in order of time, with one of ns-3's independent random runs. With
        `longest_report`, a shorter report of a busy medium does not replace a longer one."""
        plan = self._rival.Plan()
        for x, y in positions:
            plan.x.push_back(x)
            plan.y.push_back(y)
        for send in sends:
            plan.at_us.push_back(send.at_us)
            plan.source.push_back(send.source)
            plan.to.push_back(send.to)
            plan.bytes.push_back(send.payload_bytes)
        found = self._rival.Run(plan, run, longest_report)
        return Ns3Result(
            list(found.receivers),
            sorted(found.delay_us),
            int(found.frames),
            int(found.retransmissions),
            float(found.cpu_s),
        )
