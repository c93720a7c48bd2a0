#include "collector/self_test.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "collector/loopback_pair.h"

namespace kitty::collector {

namespace {

constexpr std::string_view kSelfTest = "loopback self-test";
constexpr uint64_t kSaneMeanUs =
    1'000'000;  // a loopback round trip of a second means garbage, not a slow machine

bool pass_byte(const Fd& from, const Fd& to) {
  char byte = 'k';
  return send(from.get(), &byte, 1, MSG_NOSIGNAL) == 1 && recv(to.get(), &byte, 1, 0) == 1;
}

}  // namespace

Result<uint32_t> run_self_test(FlowMaps& maps) {
  const Result<LoopbackPair> pair = connect_loopback_pair(kSelfTest);
  if (!pair) return std::unexpected(pair.error());
  struct stat status{};
  if (fstat(pair->client.get(), &status) != 0) return fail(kSelfTest, "fstat", errno);
  const uint64_t inode = status.st_ino;
  if (maps.own(inode) != OwnResult::owned) return fail(kSelfTest, "map owned", 0, "it takes no entry");

  bool sent = true;
  for (int round = 0; sent && round < kSelfTestRounds; ++round) {
    sent = pass_byte(pair->client, pair->server) && pass_byte(pair->server, pair->client);
  }
  const int send_error = errno;
  kitty_flow flow{};
  const bool read = maps.read_owned(inode, flow);
  maps.disown(inode);
  if (!sent) return fail(kSelfTest, "exchange", send_error);
  if (!read) return fail(kSelfTest, "map owned", 0, "the entry went away");

  uint64_t samples = 0;
  for (const uint64_t bucket : flow.buckets) samples += bucket;
  if (samples < kSelfTestSamples) {
    return fail(kSelfTest, {}, 0,
                "it fired for " + std::to_string(samples) + " of " + std::to_string(kSelfTestRounds) +
                    " data ACKs: the function is inlined where data arrives, or never called");
  }
  if (const uint64_t mean_us = flow.rtt_sum_us / samples; mean_us > kSaneMeanUs) {
    return fail(
        kSelfTest, {}, 0,
        "mean round trip of " + std::to_string(mean_us) + " us on loopback: the argument is not the sample");
  }
  return flow.counters.have;
}

}  // namespace kitty::collector
