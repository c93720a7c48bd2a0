// The running kernel's type information, or a file's that stands in for it. Owns the bytes behind the Btf
// view: keep it while anything links or loads against btf(), then drop it (5-8 MB of address space, or of
// memory where it was read). Move-only; immutable once loaded, so any number of threads may read it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/error.h"
#include "loader/btf.h"

namespace kitty::loader {

inline constexpr const char* kKernelBtfPath = "/sys/kernel/btf/vmlinux";

class KernelBtf {
 public:
  // Maps /sys/kernel/btf/vmlinux (Linux 6.16), else reads it.
  static Result<KernelBtf> of_running_kernel();
  // A raw BTF file, for kernels built without it. Refused unread: what is no regular file, and one beyond
  // kMaxBtfBytes. An ELF file is refused with the command that extracts its BTF.
  static Result<KernelBtf> from_file(const std::string& path);

  KernelBtf(KernelBtf&&) noexcept;
  KernelBtf& operator=(KernelBtf&&) noexcept;
  ~KernelBtf();

  [[nodiscard]] const Btf& btf() const;

 private:
  struct Bytes;
  KernelBtf(std::unique_ptr<Bytes> bytes, Btf btf);
  static Result<KernelBtf> parse(std::unique_ptr<Bytes> bytes, const std::string& path);

  std::unique_ptr<Bytes> bytes_;
  Btf btf_;
};

}  // namespace kitty::loader
