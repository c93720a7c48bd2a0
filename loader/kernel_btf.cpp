#include "loader/kernel_btf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "loader/explain.h"

namespace kitty::loader {

namespace {
constexpr std::string_view kOperation = "read kernel BTF";
constexpr size_t kFirstGuessBytes = size_t{8} << 20;
constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
}  // namespace

struct KernelBtf::Bytes {
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() {
    if (mapped != nullptr) munmap(mapped, mapped_size);
  }
  [[nodiscard]] std::span<const std::byte> view() const {
    if (mapped != nullptr) return {static_cast<const std::byte*>(mapped), mapped_size};
    return read;
  }
  // 0 or an errno value. btf_sysfs_vmlinux_mmap() of the kernel wants a private, read-only mapping; older
  // ones say ENODEV.
  int map(const Fd& fd, size_t size) {
    void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (address == MAP_FAILED) return errno;
    mapped = address;
    mapped_size = size;
    return 0;
  }
  // 0 or an errno value; EFBIG above kMaxBtfBytes.
  int read_all(const Fd& fd, size_t size_hint) {
    read.resize(size_hint > 0 && size_hint < kMaxBtfBytes ? size_hint + 1 : kFirstGuessBytes);
    size_t used = 0;
    for (;;) {
      const ssize_t count = ::read(fd.get(), read.data() + used, read.size() - used);
      if (count < 0) {
        if (errno == EINTR) continue;
        return errno;
      }
      if (count == 0) break;
      used += static_cast<size_t>(count);
      if (used > kMaxBtfBytes) return EFBIG;
      if (used == read.size()) read.resize(read.size() * 2);
    }
    read.resize(used);
    read.shrink_to_fit();
    return 0;
  }

  void* mapped = nullptr;
  size_t mapped_size = 0;
  std::vector<std::byte> read;
};

KernelBtf::KernelBtf(std::unique_ptr<Bytes> bytes, Btf btf)
    : bytes_(std::move(bytes)), btf_(std::move(btf)) {}
KernelBtf::KernelBtf(KernelBtf&&) noexcept = default;
KernelBtf& KernelBtf::operator=(KernelBtf&&) noexcept = default;
KernelBtf::~KernelBtf() = default;

const Btf& KernelBtf::btf() const { return btf_; }

Result<KernelBtf> KernelBtf::parse(std::unique_ptr<Bytes> bytes, const std::string& path) {
  auto btf = Btf::parse(bytes->view());
  if (!btf) {
    Error error = std::move(btf.error());
    error.detail = path + (error.detail.empty() ? "" : ": " + error.detail);
    return std::unexpected(std::move(error));
  }
  return KernelBtf(std::move(bytes), std::move(*btf));
}

Result<KernelBtf> KernelBtf::of_running_kernel() {
  const Fd fd(open(kKernelBtfPath, O_RDONLY | O_CLOEXEC));
  if (!fd) {
    const int err = errno;
    const Refusal refusal{.step = Step::read_kernel_btf, .err = err};
    return fail(kOperation, kKernelBtfPath, err, explain(refusal, read_host_facts()));
  }
  struct stat st{};
  if (fstat(fd.get(), &st) != 0) return fail(kOperation, kKernelBtfPath, errno);
  const size_t size = st.st_size > 0 ? static_cast<size_t>(st.st_size) : 0;
  auto bytes = std::make_unique<Bytes>();
  if (size == 0 || size > kMaxBtfBytes || bytes->map(fd, size) != 0) {
    if (const int err = bytes->read_all(fd, size)) return fail(kOperation, kKernelBtfPath, err);
  }
  return parse(std::move(bytes), kKernelBtfPath);
}

Result<KernelBtf> KernelBtf::from_file(const std::string& path) {
  // A FIFO would keep the open waiting for a writer, a device may be without end.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return fail(kOperation, path, errno);
  struct stat st{};
  if (fstat(fd.get(), &st) != 0) return fail(kOperation, path, errno);
  if (!S_ISREG(st.st_mode)) {
    return fail(kOperation, path, 0, "not a regular file: give the path of a file that holds raw BTF");
  }
  if (st.st_size > 0 && static_cast<uint64_t>(st.st_size) > kMaxBtfBytes) {
    return fail(kOperation, path, EFBIG,
                "it has " + std::to_string(st.st_size >> 20) + " MiB, and no kernel's BTF is larger than " +
                    std::to_string(kMaxBtfBytes >> 20) + ": give the path of a file that holds raw BTF");
  }
  // Read, not mapped: a file that shrinks under a mapping would be a SIGBUS.
  auto bytes = std::make_unique<Bytes>();
  if (const int err = bytes->read_all(fd, st.st_size > 0 ? static_cast<size_t>(st.st_size) : 0)) {
    return fail(kOperation, path, err);
  }
  const auto view = bytes->view();
  if (view.size() >= sizeof kElfMagic && memcmp(view.data(), kElfMagic, sizeof kElfMagic) == 0) {
    return fail(kOperation, path, 0,
                "an ELF file, not raw BTF: extract it with objcopy -O binary --only-section=.BTF "
                "--set-section-flags .BTF=alloc");
  }
  return parse(std::move(bytes), path);
}

}  // namespace kitty::loader
