#include "loader/iterator.h"

#include <linux/bpf.h>

#include <cerrno>

#include "loader/explain.h"
#include "loader/sys.h"

namespace kitty::loader {

namespace {

constexpr std::string_view kOperation = "iterate";

std::unexpected<Error> refused(const Program& program, int err) {
  const Refusal refusal{
      .step = Step::iterate, .err = err, .kind = program.hook().kind, .target = program.hook().target};
  return fail(kOperation, program.section(), err, explain(refusal, read_host_facts()));
}

}  // namespace

Result<Iterator> Iterator::start(const Program& program, uint32_t pid) {
  if (program.hook().kind != HookKind::iter || pid == 0) return fail(kOperation, program.section(), EINVAL);
  auto link =
      sys::create_link({.program_fd = program.fd(), .attach_type = BPF_TRACE_ITER, .iterated_pid = pid});
  if (!link) return refused(program, link.error());
  // A kernel that knows the parameters of some other iterator of that size, but not these, takes and ignores
  // them.
  const auto understood = sys::iterated_pid(link->get());
  if (!understood) return refused(program, understood.error());
  if (*understood != pid) return refused(program, E2BIG);
  auto run = sys::create_iterator(link->get());
  if (!run) return refused(program, run.error());
  return Iterator(std::move(*link), std::move(*run));
}

Result<size_t> Iterator::read(std::span<std::byte> buffer) {
  const auto count = sys::read_iterator(run_.get(), buffer);
  if (!count) return fail("read iterator", {}, count.error());
  return *count;
}

}  // namespace kitty::loader
