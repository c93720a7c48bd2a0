// Reads that may never come back, done by threads that may be left behind. A file under /proc of a process
// that hangs in the kernel hangs its reader with it, and no signal but the end of the reader's program ends
// that (a page fault on FUSE, NFS or Lustre that holds mmap_lock; an execve(2) that holds exec_update_lock
// while it closes such a file). So the reader is a thread whose loss costs a stack.
//
// A batch is read item by item on one worker, which costs one hand-over a batch. Where an item gets nowhere
// for Limits::late_after, another worker goes on with the rest; an item that has not come back
// Limits::stuck_after after its beginning, with all the rest done, is stuck. Its thread ends by itself should
// the read ever return.
//
// Ownership: what a worker touches belongs to the batch, which every thread that works on it shares. So do
// not touch a batch again of which something was left behind. Thread-safety: one thread runs batches;
// cancel() and hung() are for any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace kitty::collector {

// Enough for the buffers of all readers, which lie on it; only what is touched is resident.
inline constexpr size_t kReaderStackBytes = size_t{256} << 10;

// What an item is about, as far as its reader knows: whom a hung read counts against, and who it was.
struct Subject {
  uint32_t owner = UINT32_MAX;  // a user; UINT32_MAX: not known
  uint64_t start_time_ticks = 0;
  std::array<char, 32> comm{};  // NUL-terminated; may be empty

  void set_comm(std::string_view name);
};

// A read that was left behind. Thread-safe.
class LeftRead;

class Turns;

class Batch {
 public:
  virtual ~Batch() = default;
  [[nodiscard]] virtual size_t size() const = 0;
  // On a worker: reads what `turns` gives, as long as it gives any.
  virtual void work(Turns& turns) = 0;
};

// A batch of one kind of request. `Reader` has a Request, an Answer and `Answer read(const Request&,
// Turns&)`; every thread makes one of its own, buffers and all, so that nothing is shared.
template <class Reader>
class ReadBatch final : public Batch {
 public:
  [[nodiscard]] size_t size() const override { return requests.size(); }
  void work(Turns& turns) override;

  std::vector<typename Reader::Request> requests;
  std::vector<typename Reader::Answer> answers;  // as many; of those that were read
};

enum class ReadEnd : uint8_t {
  read,
  stuck,    // it did not come back
  refused,  // it was not begun: too many hang already
};

class Expendable {
 public:
  struct Limits {
    std::chrono::milliseconds late_after{30};
    std::chrono::milliseconds stuck_after{1000};
    size_t hung_reads = 128;  // at once, of all owners
  };
  struct Left {
    size_t item = 0;
    Subject subject;
    std::shared_ptr<const LeftRead> read;
  };
  // What became of a batch. Its memory is reused.
  struct Outcome {
    std::vector<ReadEnd> ends;  // of each item
    std::vector<Left> left;     // of those that are stuck
    size_t refused = 0;

    [[nodiscard]] bool complete() const { return left.empty() && refused == 0; }
  };

  explicit Expendable(Limits limits);
  ~Expendable();  // waits for nobody
  Expendable(const Expendable&) = delete;
  Expendable& operator=(const Expendable&) = delete;

  // Returns when each item has been read, is stuck or was refused; at `most` from now in any case where that
  // is given. Takes nothing from the heap where the batch is no larger than the one before and nothing hangs.
  void run(const std::shared_ptr<Batch>& batch, Outcome& outcome,
           std::optional<std::chrono::milliseconds> most = {});
  // Ends run(), which leaves the item in hand behind, now and from now on.
  void cancel();
  // Reads that hang at the moment.
  [[nodiscard]] size_t hung() const;

 private:
  struct Hung;
  struct Job;
  struct Worker;
  friend class Turns;

  bool start_worker();
  void post(const std::shared_ptr<Job>& job);
  void leave_behind(Job& job, Outcome& outcome);

  const Limits limits_;
  std::shared_ptr<Hung> hung_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;                // guards the pointer job_, for cancel()
  std::shared_ptr<Job> job_;        // of the latest batch; reused where no worker has it any more
  std::shared_ptr<Worker> worker_;  // who gets the next batch; null: to be started
};

// How far a batch is, for a thread that works on it.
class Turns {
 public:
  Turns(std::shared_ptr<Expendable::Job> job, std::shared_ptr<Expendable::Worker> worker);

  // What was given before has been read, and its answer stands. The next item; nothing where this thread's
  // part is over.
  [[nodiscard]] std::optional<size_t> next();
  // Called before what may hang. False where the owner has `most` hung reads, or all have as many as they
  // may: the item is to be left alone, and counts as refused.
  [[nodiscard]] bool may_hang(const Subject& subject, size_t most);
  // The item takes long, and gets on.
  void goes_on();

 private:
  std::shared_ptr<Expendable::Job> job_;
  std::shared_ptr<Expendable::Worker> worker_;
  std::optional<size_t> item_;
};

// When it came back, CLOCK_MONOTONIC; 0: it has not.
[[nodiscard]] uint64_t returned_ns(const LeftRead& read);

template <class Reader>
void ReadBatch<Reader>::work(Turns& turns) {
  Reader reader;
  while (const auto item = turns.next()) answers[*item] = reader.read(requests[*item], turns);
}

}  // namespace kitty::collector
