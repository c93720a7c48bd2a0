// The ladder on the running kernel, whatever that is.
#include "collector/rtt_hook.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "collector/embedded_object.h"
#include "collector/self_test.h"
#include "kernel_tests.h"
#include "loader/kernel_btf.h"
#include "procfs/file.h"
#include "procfs/net_namespace.h"
#include "procfs/stat.h"
#include "tcp_pair.h"

namespace kitty::collector {
namespace {

RttSource open(std::string_view wanted, const std::string& btf = "") {
  return open_rtt_source(embedded_object(), btf, wanted);
}

TEST(RttHook, AutoTakesTheFirstRungThatWorksAndKeepsEveryRefusal) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("auto");
  const auto names = rtt_hook_names();
  const auto taken = std::ranges::find(names, source.hook.name);
  ASSERT_NE(taken, names.end()) << source.hook.refusals.back().reason;
  ASSERT_EQ(source.hook.refusals.size(), static_cast<size_t>(taken - names.begin()));
  for (size_t i = 0; i < source.hook.refusals.size(); ++i) {
    EXPECT_EQ(source.hook.refusals[i].hook, names[i]);
    EXPECT_FALSE(source.hook.refusals[i].reason.empty()) << names[i];
    EXPECT_EQ(source.hook.refusals[i].reason.find('\n'), std::string::npos) << "one line";
  }
  EXPECT_TRUE(source.hook.missing.empty()) << source.hook.missing.front().reason;
  EXPECT_NE(source.hook.have & KITTY_HAVE_TOTAL_RETRANS, 0U);
}

TEST(RttHook, TcpProbeCountsTheSamplesOfAnOwnedSocketOnly) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("tp_btf/tcp_probe");
  ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  const testing::TcpPair mine, foreign;
  const uint64_t inode = testing::inode_of(mine.client);
  ASSERT_EQ(source.maps->own(inode), OwnResult::owned);
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    for (const testing::TcpPair* pair : {&mine, &foreign}) {
      char byte = 'k';
      ASSERT_EQ(send(pair->client.get(), &byte, 1, 0), 1);
      ASSERT_EQ(recv(pair->server.get(), &byte, 1, 0), 1);
      ASSERT_EQ(send(pair->server.get(), &byte, 1, 0), 1);
      ASSERT_EQ(recv(pair->client.get(), &byte, 1, 0), 1);
    }
  }
  kitty_flow flow;
  ASSERT_TRUE(source.maps->read_owned(inode, flow));
  uint64_t samples = 0;
  for (const uint64_t bucket : flow.buckets) samples += bucket;
  EXPECT_GE(samples, static_cast<uint64_t>(kRounds - 2));
  EXPECT_LE(samples, static_cast<uint64_t>(kRounds + 1));
  EXPECT_EQ(flow.remote[2], htonl(0xffff));
  EXPECT_EQ(flow.remote[3], htonl(INADDR_LOOPBACK));
  EXPECT_NE(flow.remote_port, 0);
  ASSERT_FALSE(source.maps->read_owned(testing::inode_of(foreign.client), flow));
  kitty_flow pending;
  EXPECT_FALSE(source.maps->read_pending(testing::inode_of(foreign.client), pending))
      << "its namespace is not watched";
}

// Before its process is found, a socket's samples wait in `pending`, if its namespace is watched.
TEST(RttHook, SamplesOfUnknownSocketsInWatchedNamespacesAreKept) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("tp_btf/tcp_probe");
  ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  const auto self = procfs::open_at(AT_FDCWD, "/proc/self", O_DIRECTORY);
  ASSERT_TRUE(self);
  const auto netns = procfs::read_net_namespace(self->get());
  ASSERT_TRUE(netns);
  ASSERT_TRUE(source.maps->watch_netns(static_cast<uint32_t>(*netns)));
  const testing::TcpPair pair;
  for (int i = 0; i < 20; ++i) {
    usleep(2000);  // the kernel's counters are copied once a millisecond at most
    char byte = 'k';
    ASSERT_EQ(send(pair.client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
    ASSERT_EQ(send(pair.server.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(pair.client.get(), &byte, 1, 0), 1);
  }
  const uint64_t inode = testing::inode_of(pair.client);
  kitty_flow flow;
  ASSERT_TRUE(source.maps->read_pending(inode, flow));
  uint64_t samples = 0;
  for (const uint64_t bucket : flow.buckets) samples += bucket;
  EXPECT_GE(samples, 18U);
  EXPECT_EQ(flow.netns, *netns);
  EXPECT_GE(flow.counters.segs_out, 18U);
  EXPECT_GE(source.maps->misses()[KITTY_MISS_PENDING], samples);
  source.maps->drop_pending(inode);
  EXPECT_FALSE(source.maps->read_pending(inode, flow)) << "dropped is gone";
}

TEST(RttHook, ABtfFileServesAsTheKernelsOwn) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("tp_btf/tcp_probe", loader::kKernelBtfPath);
  EXPECT_EQ(source.hook.name, "tp_btf/tcp_probe");
}

TEST(RttHook, NothingIsLeftAttached) {
  KITTY_NEEDS_KERNEL();
  const auto statistics = loader::enable_run_stats();
  if (!statistics) GTEST_SKIP() << statistics.error().message();
  std::optional<RttSource> source = open("tp_btf/tcp_probe");
  ASSERT_NE(source->maps, nullptr);
  // A second descriptor of the program outlives the link, so its count can be read when nothing calls it any
  // more.
  loader::Program program = std::move(source->hook.attached.front().program);
  const auto run_count = [&program] { return program.run_stats().value_or(loader::RunStats{}).run_count; };
  const auto exchange = [] {
    const testing::TcpPair pair;
    char byte = 'k';
    EXPECT_EQ(send(pair.client.get(), &byte, 1, 0), 1);
    EXPECT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
  };
  const uint64_t before = run_count();
  exchange();
  const uint64_t attached = run_count();
  EXPECT_GT(attached, before);
  source.reset();
  const uint64_t detached = run_count();
  exchange();
  EXPECT_EQ(run_count(), detached);
}

TEST(RttHook, NoneAsksForNothing) {
  const RttSource source = open("none");
  EXPECT_EQ(source.maps, nullptr);
  EXPECT_EQ(source.hook.name, "none");
  EXPECT_TRUE(source.hook.refusals.empty());
}

TEST(RttHook, AMissingBtfFileIsAReasonNotAnEnd) {
  const RttSource source = open("auto", "/nonexistent.btf");
  EXPECT_EQ(source.hook.name, "none");
  ASSERT_EQ(source.hook.refusals.size(), 1U);
  EXPECT_NE(source.hook.refusals[0].reason.find("/nonexistent.btf"), std::string::npos);
}

size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// A link or a program that is kept is a descriptor.
TEST(TryHooks, LeavesNothingAttached) {
  const size_t before = open_descriptors();
  (void)try_hooks(embedded_object(), "");
  EXPECT_EQ(open_descriptors(), before);
}

// Each rung asked for by name must come to the same end, and what refuses it must have the same reason.
TEST(TryHooks, AgreesWithTheLadderRungByRung) {
  KITTY_NEEDS_KERNEL();
  const HookTrials trials = try_hooks(embedded_object(), "");
  EXPECT_TRUE(trials.has_btf);
  ASSERT_TRUE(trials.obstacle.reason.empty()) << trials.obstacle.reason;
  const auto names = rtt_hook_names();
  ASSERT_EQ(trials.hooks.size(), names.size() + 5);
  for (size_t i = 0; i < names.size(); ++i) {
    const HookTrial& trial = trials.hooks[i];
    EXPECT_EQ(trial.hook, names[i]);
    const RttSource source = open(names[i]);
    EXPECT_EQ(trial.reason.empty(), source.hook.name == names[i]) << names[i] << ": " << trial.reason;
    EXPECT_EQ(trial.reason.find('\n'), std::string::npos) << "one line";
    if (source.hook.refusals.empty()) continue;
    // The ladder names the program too.
    const std::string& reason = source.hook.refusals.front().reason;
    EXPECT_TRUE(reason.ends_with(trial.reason.substr(trial.reason.find(": ")))) << reason << trial.reason;
  }
  EXPECT_EQ(trials.hooks[names.size()].hook, "raw_tp/tcp_retransmit_skb");
  EXPECT_EQ(trials.hooks[names.size() + 1].hook, "raw_tp/sched_process_exec");
  EXPECT_EQ(trials.hooks.back().hook, "iter/task_file");
  const RttSource source = open("auto");
  EXPECT_EQ(trials.hooks.back().reason.empty(), source.rows != nullptr);
}

TEST(TryHooks, WithoutTypeInformationThereIsOneObstacle) {
  const HookTrials trials = try_hooks(embedded_object(), "/nonexistent.btf");
  EXPECT_FALSE(trials.has_btf);
  EXPECT_TRUE(trials.hooks.empty());
  EXPECT_EQ(trials.obstacle.err, ENOENT);
  EXPECT_NE(trials.obstacle.reason.find("/nonexistent.btf"), std::string::npos);
}

TEST(SelfTest, WithoutAHookItSaysThatNothingFired) {
  KITTY_NEEDS_KERNEL();
  const auto object = loader::Object::parse(embedded_object());
  ASSERT_TRUE(object);
  auto maps = FlowMaps::create(*object);
  ASSERT_TRUE(maps) << maps.error().message();
  const Result<uint32_t> result = run_self_test(*maps);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("fired for 0 of 20 data ACKs"), std::string::npos)
      << result.error().message();
}

// The running kernel's type information, in which no type has a member of that name; empty where none has.
std::string btf_without(std::string_view member) {
  std::ifstream file(loader::kKernelBtfPath, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string name = '\0' + std::string(member) + '\0';
  const size_t at = bytes.find(name);
  if (at == std::string::npos) return {};
  bytes[at + 1] = '-';
  std::string path = ::testing::TempDir() + "kitty_btf_without";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// A kernel without IPv6 has no addresses of it in struct sock_common; others lack what came later, or was
// taken away.
TEST(RttHook, AnAbsentFieldCostsWhatItWasForAndNoHook) {
  KITTY_NEEDS_KERNEL();
  const bool lists = open("none").rows_refusal.empty() && open("tp_btf/tcp_probe").rows != nullptr;
  for (const std::string_view member :
       {"skc_v6_daddr", "skc_v6_rcv_saddr", "segs_out", "data_segs_out", "bytes_sent", "bytes_acked",
        "total_retrans", "chrono_type", "tcp_mstamp", "f_cred", "real_cred", "conn_list", "snd_nxt"}) {
    SCOPED_TRACE(member);
    const std::string path = btf_without(member);
    if (path.empty()) continue;  // as Linux 5.10 has no MPTCP subflows in a list
    const RttSource source = open("tp_btf/tcp_probe", path);
    unlink(path.c_str());
    ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
    EXPECT_TRUE(source.hook.missing.empty()) << source.hook.missing.front().reason;
    EXPECT_EQ(source.rows != nullptr, lists) << source.rows_refusal;
    EXPECT_EQ((source.hook.have & KITTY_HAVE_SEGS_OUT) != 0, member != "segs_out");
    EXPECT_EQ((source.hook.have & KITTY_HAVE_BYTES_SENT) != 0, member != "bytes_sent");
    EXPECT_EQ((source.hook.have & KITTY_HAVE_BUSY) != 0, member != "chrono_type");
  }
}

void exchange(const Fd& client, const Fd& server, int rounds) {
  char byte = 'k';
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(send(client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(server.get(), &byte, 1, 0), 1);
    ASSERT_EQ(send(server.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(client.get(), &byte, 1, 0), 1);
  }
}

TEST(RttHook, TheSameTupleUsedAgainBeginsAnew) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("tp_btf/tcp_probe");
  ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  testing::TcpPair pair;
  const uint64_t inode = testing::inode_of(pair.client);
  ASSERT_EQ(source.maps->own(inode), OwnResult::owned);
  sockaddr_in local{}, remote{};
  socklen_t size = sizeof local;
  ASSERT_EQ(getsockname(pair.client.get(), reinterpret_cast<sockaddr*>(&local), &size), 0);
  ASSERT_EQ(getpeername(pair.client.get(), reinterpret_cast<sockaddr*>(&remote), &size), 0);
  exchange(pair.client, pair.server, 50);
  usleep(2000);  // counters are copied once a millisecond
  exchange(pair.client, pair.server, 50);
  kitty_flow before, after;
  ASSERT_TRUE(source.maps->read_owned(inode, before));

  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  ASSERT_EQ(connect(pair.client.get(), &nobody, sizeof nobody), 0);
  ASSERT_EQ(bind(pair.client.get(), reinterpret_cast<const sockaddr*>(&local), size), 0) << errno_text(errno);
  ASSERT_EQ(connect(pair.client.get(), reinterpret_cast<const sockaddr*>(&remote), size), 0)
      << errno_text(errno);
  pair.server = Fd(accept4(pair.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  usleep(2000);
  exchange(pair.client, pair.server, 20);
  ASSERT_TRUE(source.maps->read_owned(inode, after));
  EXPECT_EQ(after.hash, before.hash) << "it would be told by that";
  EXPECT_EQ(after.resets, before.resets + 1);
  EXPECT_LT(after.counters.segs_out, before.counters.segs_out);
  uint64_t samples = 0;
  for (const uint64_t bucket : after.buckets) samples += bucket;
  EXPECT_LE(samples, 21U) << "of the connection before";
  EXPECT_GE(samples, 15U);
}

// MPTCP gives its subflows' struct sockets the number of its own; some have a file and some have none.
TEST(RttHook, AnMptcpSubflowsSamplesAreFoundByItsKey) {
  KITTY_NEEDS_KERNEL();
  const testing::TcpPair pair(IPPROTO_MPTCP);
  if (!pair.client) GTEST_SKIP() << "no MPTCP sockets here: " << errno_text(errno);
  const RttSource source = open("tp_btf/tcp_probe");
  ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  if (!source.rows) GTEST_SKIP() << "their keys cannot be listed: " << source.rows_refusal;
  std::array<char, procfs::kStatBufferBytes> buffer;
  const auto self = procfs::open_at(AT_FDCWD, "/proc/self", O_DIRECTORY);
  const auto stat = procfs::read_stat(self->get(), buffer);
  std::vector<uint64_t> keys;
  const auto listed = source.rows->list({getpid(), stat->start_time_ticks}, [&](const kitty_socket_row& row) {
    const uint64_t inode = row.inode ^ uint64_t { row.hash } << 32;
    if (inode == testing::inode_of(pair.client) || inode == testing::inode_of(pair.server))
      keys.push_back(row.inode);
  });
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(keys.size(), 2U);
  for (const uint64_t key : keys) ASSERT_EQ(source.maps->own(key), OwnResult::owned);
  exchange(pair.client, pair.server, 50);
  for (const uint64_t key : keys) {
    kitty_flow flow;
    ASSERT_TRUE(source.maps->read_owned(key, flow));
    uint64_t samples = 0;
    for (const uint64_t bucket : flow.buckets) samples += bucket;
    EXPECT_GE(samples, 40U) << key;
    EXPECT_GT(flow.counters.segs_out, 0U);
    EXPECT_EQ(flow.resets, 0U);
  }
}

}  // namespace
}  // namespace kitty::collector
