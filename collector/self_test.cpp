#include "collector/self_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cerrno>
#include <string>

#include "base/fd.h"

namespace kitty::collector {

namespace {

constexpr timeval kTimeout = {.tv_sec = 1, .tv_usec = 0};
constexpr uint64_t kSaneMeanUs =
    1'000'000;  // a loopback round trip of a second means garbage, not a slow machine

struct Pair {
  Fd client, server;
};

std::unexpected<Error> failed(std::string_view step) { return fail("loopback self-test", step, errno); }

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

Result<Pair> connect_pair() {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return failed("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener.get(), generic(address), sizeof address) != 0) return failed("bind 127.0.0.1");
  if (listen(listener.get(), 1) != 0) return failed("listen");
  if (getsockname(listener.get(), generic(address), &size) != 0) return failed("getsockname");

  Pair pair;
  pair.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!pair.client) return failed("socket");
  for (const Fd* end :
       {&listener, &pair.client}) {  // connect() and accept() obey them too; accept() hands them on
    setsockopt(end->get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
    setsockopt(end->get(), SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof kTimeout);
  }
  if (connect(pair.client.get(), generic(address), sizeof address) != 0) return failed("connect 127.0.0.1");
  pair.server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!pair.server) return failed("accept");
  setsockopt(pair.server.get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  const int on = 1;
  setsockopt(pair.client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(pair.server.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return pair;
}

bool pass_byte(const Fd& from, const Fd& to) {
  char byte = 'k';
  return send(from.get(), &byte, 1, MSG_NOSIGNAL) == 1 && recv(to.get(), &byte, 1, 0) == 1;
}

}  // namespace

Result<uint32_t> run_self_test(FlowMaps& maps) {
  Result<Pair> pair = connect_pair();
  if (!pair) return std::unexpected(pair.error());
  struct stat status{};
  if (fstat(pair->client.get(), &status) != 0) return failed("fstat");
  const uint64_t inode = status.st_ino;
  if (maps.own(inode) != OwnResult::owned)
    return fail("loopback self-test", "map owned", 0, "it takes no entry");

  bool sent = true;
  for (int round = 0; sent && round < kSelfTestRounds; ++round) {
    sent = pass_byte(pair->client, pair->server) && pass_byte(pair->server, pair->client);
  }
  const int send_error = errno;
  kitty_flow flow{};
  const bool read = maps.read_owned(inode, flow);
  maps.disown(inode);
  if (!sent) return fail("loopback self-test", "exchange", send_error);
  if (!read) return fail("loopback self-test", "map owned", 0, "the entry went away");

  uint64_t samples = 0;
  for (const uint64_t bucket : flow.buckets) samples += bucket;
  if (samples < kSelfTestSamples) {
    return fail("loopback self-test", {}, 0,
                "it fired for " + std::to_string(samples) + " of " + std::to_string(kSelfTestRounds) +
                    " data ACKs: the function is inlined where data arrives, or never called");
  }
  if (const uint64_t mean_us = flow.rtt_sum_us / samples; mean_us > kSaneMeanUs) {
    return fail(
        "loopback self-test", {}, 0,
        "mean round trip of " + std::to_string(mean_us) + " us on loopback: the argument is not the sample");
  }
  return flow.counters.have;
}

}  // namespace kitty::collector
