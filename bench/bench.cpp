// The parts of `make bench` that run inside one process, each a ratio of two things measured side by side:
//
//   bench table    user time of the net/tcp parser against the kernel's time to print the same table
//   bench snmp     user time of the snmp parser against its read
//   bench bpf      nanoseconds a run of each RTT hook that this kernel has, above an empty program of the
//   same kind bench maps     bytes of kernel memory of the BPF maps
//
// Prints `name value unit` lines, for bench/run to put into a table.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "collector/embedded_object.h"
#include "collector/flow_maps.h"
#include "collector/rtt_hook.h"
#include "loader/kernel_btf.h"
#include "loader/link.h"
#include "loader/program.h"
#include "procfs/file.h"
#include "procfs/snmp.h"
#include "procfs/tcp_table.h"

namespace {

using namespace kitty;

struct CpuTime {
  double user_s, system_s;
  static double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  }
  static CpuTime now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
  }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int failed(const Error& error) {
  std::fprintf(stderr, "bench: %s\n", error.message().c_str());
  return 1;
}

// The file as one text, so that the parser can be timed apart from the read.
std::string slurp(const char* path, double& system_s) {
  std::string text;
  std::vector<char> buffer(procfs::kTcpTableBufferBytes);
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  const CpuTime before = CpuTime::now();
  for (;;) {
    const ssize_t n = read(file.get(), buffer.data(), buffer.size());
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  system_s = CpuTime::now().system_s - before.system_s;
  return text;
}

int bench_table() {
  constexpr int kRounds = 9;
  std::vector<double> read_s, parse_s;
  uint64_t rows = 0;
  for (int round = 0; round < kRounds; ++round) {
    double system_s = 0;
    const std::string text = slurp("/proc/self/net/tcp", system_s);
    read_s.push_back(system_s);
    constexpr int kRepeats = 20;  // user time is accounted in ticks on some kernels
    const CpuTime before = CpuTime::now();
    for (int i = 0; i < kRepeats; ++i) {
      procfs::TcpTableParser parser;
      uint64_t queued = 0;
      const auto on_row = [&queued](const procfs::TcpRow& row) {
        queued += procfs::queued_tx_bytes(row) + row.inode;
      };
      for (std::string_view rest = text; !rest.empty();) {
        const size_t piece = std::min<size_t>(rest.size(), 4096);  // what a read returns at most
        parser.feed(rest.substr(0, piece), on_row);
        rest.remove_prefix(piece);
      }
      parser.finish(on_row);
      rows = parser.rows();
      asm volatile("" : : "r"(queued));
    }
    parse_s.push_back((CpuTime::now().user_s - before.user_s) / kRepeats);
  }
  const double per_row = static_cast<double>(std::max<uint64_t>(rows, 1));
  std::printf("table_rows %llu rows\n", static_cast<unsigned long long>(rows));
  std::printf("table_read %.0f ns/row\n", median(read_s) * 1e9 / per_row);
  std::printf("table_parse %.1f ns/row\n", median(parse_s) * 1e9 / per_row);
  std::printf("table_ratio %.2f %%\n", 100 * median(parse_s) / median(read_s));
  return 0;
}

int bench_snmp() {
  constexpr int kRuns = 20000;
  char buffer[procfs::kSnmpBufferBytes];
  const CpuTime start = CpuTime::now();
  std::string_view text;
  for (int i = 0; i < kRuns; ++i) {
    const auto read = procfs::read_text_at(AT_FDCWD, "/proc/self/net/snmp", buffer);
    if (!read) return 1;
    text = *read;
  }
  const CpuTime middle = CpuTime::now();
  procfs::SnmpTcp tcp;
  for (int i = 0; i < kRuns; ++i) {
    if (procfs::parse_snmp(text, tcp) != procfs::SnmpError::none) return 1;
    asm volatile("" : : "r"(&tcp) : "memory");
  }
  const CpuTime end = CpuTime::now();
  const double read_s = middle.user_s + middle.system_s - start.user_s - start.system_s;
  const double parse_s = end.user_s - middle.user_s;
  std::printf("snmp_read %.2f us\n", read_s * 1e6 / kRuns);
  std::printf("snmp_parse %.2f us\n", parse_s * 1e6 / kRuns);
  std::printf("snmp_ratio %.2f %%\n", 100 * parse_s / read_s);
  return 0;
}

bool ping_pong(int rounds, uint64_t& inode, collector::FlowMaps& maps) {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 1) != 0) return false;
  if (getsockname(listener.get(), generic, &size) != 0) return false;
  const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(client.get(), generic, size) != 0) return false;
  const Fd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  for (const Fd* end : {&client, &server}) {
    setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct stat status{};
    fstat(end->get(), &status);
    inode = status.st_ino;
    if (maps.own(inode) != collector::OwnResult::owned) return false;
  }
  char byte = 'k';
  for (int i = 0; i < rounds; ++i) {
    if (send(client.get(), &byte, 1, MSG_NOSIGNAL) != 1 || recv(server.get(), &byte, 1, 0) != 1) return false;
    if (send(server.get(), &byte, 1, MSG_NOSIGNAL) != 1 || recv(client.get(), &byte, 1, 0) != 1) return false;
  }
  return true;
}

// r0 = 0; exit
loader::LinkedProgram empty_program(std::string_view section) {
  bpf_insn zero{}, leave{};
  zero.code = BPF_ALU64 | BPF_MOV | BPF_K;
  leave.code = BPF_JMP | BPF_EXIT;
  return {
      .name = "empty", .section = std::string(section), .insns = {zero, leave}, .maps = {}, .poisoned = {}};
}

int bench_bpf() {
  constexpr int kRounds = 20000, kRepeats = 5;
  for (const std::string_view hook : collector::rtt_hook_names()) {
    collector::RttSource source = collector::open_rtt_source(collector::embedded_object(), "", hook);
    if (!source.maps) {
      std::printf("bpf:%.*s - %s\n", static_cast<int>(hook.size()), hook.data(),
                  source.hook.refusals.front().reason.c_str());
      continue;
    }
    const auto kernel = loader::KernelBtf::of_running_kernel();
    if (!kernel) return failed(kernel.error());
    const auto empty = loader::Program::load(
        empty_program(hook),
        {.maps = {}, .license = "GPL", .kernel_btf = &kernel->btf(), .verifier_log = nullptr});
    if (!empty) return failed(empty.error());
    const auto link = loader::Link::attach(*empty);
    if (!link) return failed(link.error());
    const auto statistics = loader::enable_run_stats();
    if (!statistics) return failed(statistics.error());

    std::vector<double> above, bare;
    const loader::Program& program = source.hook.attached.front().program;
    for (int i = 0; i < kRepeats; ++i) {
      const auto program_before = program.run_stats(), empty_before = empty->run_stats();
      uint64_t inode = 0;
      if (!ping_pong(kRounds, inode, *source.maps)) return 1;
      const auto program_after = program.run_stats(), empty_after = empty->run_stats();
      if (!program_before || !program_after || !empty_before || !empty_after) return 1;
      const auto mean = [](const loader::RunStats& before, const loader::RunStats& after) {
        return static_cast<double>(after.run_time_ns - before.run_time_ns) /
               static_cast<double>(std::max<uint64_t>(after.run_count - before.run_count, 1));
      };
      bare.push_back(mean(*empty_before, *empty_after));
      above.push_back(mean(*program_before, *program_after) - bare.back());
    }
    std::printf("bpf:%.*s %.0f ns above an empty program's %.0f\n", static_cast<int>(hook.size()),
                hook.data(), median(above), median(bare));
  }
  return 0;
}

int bench_maps() {
  const auto object = loader::Object::parse(collector::embedded_object());
  if (!object) return failed(object.error());
  const auto maps = collector::FlowMaps::create(*object);
  if (!maps) return failed(maps.error());
  std::printf("maps_memory %.2f MiB\n", static_cast<double>(maps->memory_bytes()) / (1 << 20));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "table") return bench_table();
  if (what == "snmp") return bench_snmp();
  if (what == "bpf") return bench_bpf();
  if (what == "maps") return bench_maps();
  std::fputs("usage: bench table|snmp|bpf|maps\n", stderr);
  return 3;
}
