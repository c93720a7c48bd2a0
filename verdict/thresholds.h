// What the rules of judge.h compare with: each constant with its reason, and all of them settable. The
// figures are from recorded runs of four-rank data-parallel training: quiet, with a compute straggler, and
// with one network fault each.
#pragma once

namespace kitty::verdict {

// Below, a flow is control traffic or idle: keepalives, rendezvous and health checks stay under 1 data
// segment a second, the slowest throttled training flow sent 700.
inline constexpr double kActiveSegmentsPerS = 10;
// A mean of fewer samples is an anecdote; ten data segments a second give 30 in the shortest window.
inline constexpr double kMinRttSamples = 5;
// Messages of one segment have a sample each (measured: 0.98 to 1.00), and it holds the receiver's thinking
// time and delayed ACKs: 7 ms on a healthy link of 0.2 ms. Of longer ones a receiver that reads acknowledges
// most at once; measured: 34 to 104 segments a sample.
inline constexpr double kSegmentsPerSample = 1.2;
// A culprit's best link was 2.9 to 586 times as slow as the median of the others; a victim's and a healthy
// rank's stayed below 3 where the floor was exceeded.
inline constexpr double kRttRatio = 3;
// Healthy means differ by up to 5 ms under load (a victim's burst behind a throttle: 3.3 ms), whatever the
// ratio: 0.1 ms against 0.4 ms is no fault.
inline constexpr double kRttFloorS = 0.005;
// Of the winner's RTT, what another suspect needs to be named beside it. Neighbours of a throttled rank
// reached 0.13, two ranks with one fault each 0.9.
inline constexpr double kRunnerUpShare = 0.5;
// A mean alone convinces nobody: a receiver that does not read, because it waits for its throttled neighbour
// or computes, delays its ACKs up to 40 ms (TCP_DELACK_MIN of include/net/tcp.h; __tcp_ack_snd_check() of
// net/ipv4/tcp_input.c), which made healthy links' means 11 ms and 25 ms. Either the least RTT of both
// directions has risen with it, or, of one direction, beyond what a delayed ACK explains; or the rank's flows
// are busy half the time and half as much again as any elsewhere: those healthy links' were not, throttled
// ones were 78 % to 98 % with the others at 2 % to 44 %.
inline constexpr double kDelayedAckS = 0.045;
inline constexpr double kConvincingBusyShare = 0.5;
// All links as slow as this is a slow network even without a healthy link to compare with.
inline constexpr double kJobWideRttS = 0.025;
// A full queue is what tells a throttle from a longer path: throttled senders were busy 83 % to 98 % of the
// time with 397 kB to 696 kB queued; a 50 ms longer path had 67 %.
inline constexpr double kThrottleBusyShare = 0.8;
inline constexpr double kThrottleQueueRatio = 4;
inline constexpr double kThrottleQueueFloorBytes = 16 * 1024;
// A longer path raises the minimum as much as the mean (0.85 to 0.97 of it), a queue the mean first (0.00 to
// 0.83, over 70 windows of nine runs).
inline constexpr double kPathMinShare = 0.84;
inline constexpr double kQueueMinShare = 0.5;
// A burst of one size that meets the same queue each time has a minimum like its mean as well. But not every
// flow of the rank does: of all that begin or end there, the least minimum was 0.00 to 0.91 of the greatest
// in 97 % of 278 windows of 26 throttled runs (most others an inbound throttle's), and 0.94 to 1.00 in 95
// windows of nine runs with a path of 50 ms more.
inline constexpr double kPathLikeShare = 0.92;
// Of a short path so much is the hosts' jitter, and how far apart the racks are.
inline constexpr double kPathSpreadS = 0.001;
// 5 % loss shows as 5.4 %, its neighbours as 0.01 %, quiet runs as at most 0.02 %.
inline constexpr double kLossShare = 0.005;
inline constexpr double kLossRatio = 10;
inline constexpr double kLossFloor = 1e-4;  // of the others' median, which is zero on most networks
// Fewer in a window are no loss: on a busy machine tail loss probes alone were 6 of 850 segments of a flow
// whose network was healthy.
inline constexpr double kMinRetransmits = 20;
// What is lost at one moment is no lossy network: a throttle that ends drops all that it had queued (97 of
// 7,452 segments, all in one second).
inline constexpr double kMinLastingRetransmits = 5;
// Where a queue does not show as RTT (BBR, MPI's buffers): the throttled sender was busy 88 % and 98 %, the
// next 44 % and 13 %; quiet and straggler runs 4 %. Over all its peers, with something queued.
inline constexpr double kBusyShare = 0.7;
inline constexpr double kBusyRatio = 1.5;
// Where processors are short the job computes for longer, and a throttled sender is busy for a smaller part:
// 47 % to 78 %, 3.5 to 4.6 times the next one. Without a fault nobody was busier than 1.4 times the next,
// but for a compute straggler's 2.8 times, at 11 %.
inline constexpr double kFarBusyShare = 0.45;
inline constexpr double kFarBusyRatio = 3;
// A queue is what a moment shows: that of an MPI rank, throttled but sending in bursts, was empty in four
// scrapes running. Its best link's RTT, 2.3 to 3.7 times the median rank's, then stands for it.
inline constexpr double kSlowerRatio = 2;
// A rank that sends more than this many times what the others send is busy because of its own work: a
// broadcast, a parameter server. All ranks of a throttled ring send alike.
inline constexpr double kSameWorkRatio = 1.5;
// Retransmission timeouts double from 0.2 s: two of them, and no ACK, is more than one lost packet.
inline constexpr double kStallS = 2;
// Scrapes come a little early or late: 1.9 s pass for two.
inline constexpr double kScrapeJitterS = 0.1;
// More than this many slow links without a rank in common is no link's fault.
inline constexpr double kMaxNamedLinks = 2;
// Nodes' scrapes further apart than this are compared all the same, and said to be.
inline constexpr double kStaleS = 60;
// A shorter window holds two ticks of the agent at most.
inline constexpr double kMinWindowS = 1;

struct Thresholds {
  double active_segments_per_s = kActiveSegmentsPerS;
  double min_rtt_samples = kMinRttSamples;
  double segments_per_sample = kSegmentsPerSample;
  double rtt_ratio = kRttRatio;
  double rtt_floor_s = kRttFloorS;
  double runner_up_share = kRunnerUpShare;
  double job_wide_rtt_s = kJobWideRttS;
  double delayed_ack_s = kDelayedAckS;
  double convincing_busy_share = kConvincingBusyShare;
  double throttle_busy_share = kThrottleBusyShare;
  double throttle_queue_ratio = kThrottleQueueRatio;
  double throttle_queue_floor_bytes = kThrottleQueueFloorBytes;
  double path_min_share = kPathMinShare;
  double queue_min_share = kQueueMinShare;
  double path_like_share = kPathLikeShare;
  double path_spread_s = kPathSpreadS;
  double loss_share = kLossShare;
  double loss_ratio = kLossRatio;
  double loss_floor = kLossFloor;
  double min_retransmits = kMinRetransmits;
  double min_lasting_retransmits = kMinLastingRetransmits;
  double busy_share = kBusyShare;
  double busy_ratio = kBusyRatio;
  double far_busy_share = kFarBusyShare;
  double far_busy_ratio = kFarBusyRatio;
  double slower_ratio = kSlowerRatio;
  double same_work_ratio = kSameWorkRatio;
  double stall_s = kStallS;
  double max_named_links = kMaxNamedLinks;
  double stale_s = kStaleS;
};

}  // namespace kitty::verdict
