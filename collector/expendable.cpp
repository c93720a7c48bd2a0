#include "collector/expendable.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

constexpr size_t kNone = SIZE_MAX;

uint64_t in_ns(std::chrono::milliseconds duration) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(duration).count());
}

enum class State : uint8_t { untouched, in_hand, late, stuck, refused, read };

}  // namespace

void Subject::set_comm(std::string_view name) {
  const size_t size = std::min(name.size(), comm.size() - 1);
  comm = {};
  std::memcpy(comm.data(), name.data(), size);
}

class LeftRead {
 public:
  std::atomic<uint64_t> returned_ns = 0;
};

uint64_t returned_ns(const LeftRead& read) { return read.returned_ns.load(std::memory_order_acquire); }

// How many reads hang, and whose they are. Its mutex is the innermost.
struct Expendable::Hung {
  explicit Hung(size_t most) : limit(most) {}

  void add(uint32_t owner) {
    const std::scoped_lock lock(mutex);
    ++total;
    ++owners[owner];
  }
  void remove(uint32_t owner) {
    const std::scoped_lock lock(mutex);
    --total;
    const auto found = owners.find(owner);
    if (--found->second == 0) owners.erase(found);
  }
  bool has_room(uint32_t owner, size_t most) {
    const std::scoped_lock lock(mutex);
    if (total == 0) return true;
    const auto found = owners.find(owner);
    return total < limit && (found == owners.end() || found->second < most);
  }
  size_t count() {
    const std::scoped_lock lock(mutex);
    return total;
  }

  const size_t limit;
  std::mutex mutex;
  size_t total = 0;
  std::unordered_map<uint32_t, size_t> owners;
};

// One thread that reads. Shared by it and by whoever may still want something of it.
struct Expendable::Worker {
  static void* main(void* given);

  std::mutex mutex;  // may be taken while a job's is held, never the other way round
  std::condition_variable wake;
  std::shared_ptr<Job> job;          // to be begun
  std::atomic<bool> ending = false;  // it takes nothing more
  Subject subject;                   // of the item in hand; guarded by the mutex of its job
};

struct Expendable::Job {
  struct Item {
    State state = State::untouched;
    uint64_t began_ns = 0;
    uint32_t owner = UINT32_MAX;  // whom it counts against while it hangs
    std::shared_ptr<LeftRead> left;
  };

  void begin(std::shared_ptr<Batch> next_batch) {
    const std::scoped_lock lock(mutex);
    batch = std::move(next_batch);
    items.resize(batch->size());
    std::ranges::fill(items, Item{});
    next = 0;
    in_hand = kNone;
    closed = false;
    late = 0;
  }
  // Whether a worker has it still, perhaps with a read that hangs.
  [[nodiscard]] bool is_in_use() {
    const std::scoped_lock lock(mutex);
    return workers != 0;
  }
  [[nodiscard]] bool has_more() const { return next < items.size(); }
  // An item's read has returned. With the mutex held.
  void finish(size_t number);

  std::mutex mutex;
  std::condition_variable changed;  // something for run() to look at
  std::shared_ptr<Batch> batch;
  std::shared_ptr<Hung> hung;
  std::vector<Item> items;
  size_t next = 0;
  size_t in_hand = kNone;  // of the worker that is not late
  size_t late = 0;         // items whose State is that
  size_t workers = 0;      // that have it, or have been sent it
  bool closed = false;     // nobody waits for it any more
};

void Expendable::Job::finish(size_t number) {
  Item& item = items[number];
  if (in_hand == number) in_hand = kNone;
  if (item.state == State::late || item.state == State::stuck) {
    hung->remove(item.owner);
    item.left->returned_ns.store(monotonic_ns(), std::memory_order_release);
    changed.notify_all();
  }
  if (item.state == State::late) --late;
  if (item.state == State::late || item.state == State::in_hand) item.state = State::read;
}

void* Expendable::Worker::main(void* given) {
  const std::unique_ptr<std::shared_ptr<Worker>> owned(static_cast<std::shared_ptr<Worker>*>(given));
  const std::shared_ptr<Worker> self = *owned;  // NOLINT(performance-unnecessary-copy-initialization)
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(self->mutex);
      self->wake.wait(lock, [&] { return self->job != nullptr || self->ending; });
      if (!self->job) return nullptr;
      job = std::move(self->job);
    }
    std::shared_ptr<Batch> batch;
    {
      const std::scoped_lock lock(job->mutex);
      batch = job->batch;
    }
    Turns turns(std::move(job), self);
    batch->work(turns);
  }
}

Turns::Turns(std::shared_ptr<Expendable::Job> job, std::shared_ptr<Expendable::Worker> worker)
    : job_(std::move(job)), worker_(std::move(worker)) {}

std::optional<size_t> Turns::next() {
  if (!job_) return std::nullopt;
  {
    const std::scoped_lock lock(job_->mutex);
    if (item_) job_->finish(*item_);
    item_.reset();
    if (!worker_->ending && !job_->closed && job_->has_more()) {
      item_ = job_->next++;
      Expendable::Job::Item& item = job_->items[*item_];
      item.state = State::in_hand;
      item.began_ns = monotonic_ns();
      job_->in_hand = *item_;
      worker_->subject = {};
      return item_;
    }
    --job_->workers;
    job_->changed.notify_all();
  }
  job_.reset();
  return std::nullopt;
}

bool Turns::may_hang(const Subject& subject, size_t most) {
  const std::scoped_lock lock(job_->mutex);
  worker_->subject = subject;
  Expendable::Job::Item& item = job_->items[*item_];  // NOLINT(bugprone-unchecked-optional-access)
  if (item.state == State::in_hand) {
    item.owner = subject.owner;
    if (job_->hung->has_room(subject.owner, most)) return true;
    item.state = State::refused;
    return false;
  }
  // It was late already, and counts against nobody known.
  job_->hung->remove(item.owner);
  item.owner = subject.owner;
  job_->hung->add(item.owner);
  return true;
}

void Turns::goes_on() {
  const std::scoped_lock lock(job_->mutex);
  job_->items[*item_].began_ns = monotonic_ns();  // NOLINT(bugprone-unchecked-optional-access)
}

Expendable::Expendable(Limits limits) : limits_(limits), hung_(std::make_shared<Hung>(limits.hung_reads)) {}

Expendable::~Expendable() {
  if (!worker_) return;
  worker_->ending = true;
  const std::scoped_lock lock(worker_->mutex);
  worker_->wake.notify_all();
}

size_t Expendable::hung() const { return hung_->count(); }

void Expendable::cancel() {
  cancelled_ = true;
  std::shared_ptr<Job> job;
  {
    const std::scoped_lock lock(mutex_);
    job = job_;
  }
  if (!job) return;
  const std::scoped_lock lock(job->mutex);
  job->changed.notify_all();
}

// A thread of its own stack size, which std::thread has no word for.
bool Expendable::start_worker() {
  auto worker = std::make_shared<Worker>();
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kReaderStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto given = std::make_unique<std::shared_ptr<Worker>>(worker);
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, &Worker::main, given.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return false;
  (void)given.release();  // the thread's
  worker_ = std::move(worker);
  return true;
}

// With the job's mutex held.
void Expendable::post(const std::shared_ptr<Job>& job) {
  ++job->workers;
  const std::scoped_lock lock(worker_->mutex);
  worker_->job = job;
  worker_->wake.notify_all();
}

// The item in hand, with its worker, which ends should it come back. With the job's mutex held.
void Expendable::leave_behind(Job& job, Outcome& outcome) {
  const size_t number = std::exchange(job.in_hand, kNone);
  Job::Item& item = job.items[number];
  item.state = State::late;
  item.left = std::make_shared<LeftRead>();
  ++job.late;
  hung_->add(item.owner);
  outcome.left.push_back({number, worker_->subject, item.left});
  worker_->ending = true;
  worker_.reset();
}

void Expendable::run(const std::shared_ptr<Batch>& batch, Outcome& outcome,
                     std::optional<std::chrono::milliseconds> most) {
  outcome.ends.assign(batch->size(), ReadEnd::refused);
  outcome.left.clear();
  outcome.refused = 0;
  if (batch->size() == 0) return;
  if (!job_ || job_->is_in_use()) {
    const std::scoped_lock lock(mutex_);
    job_ = std::make_shared<Job>();
    job_->hung = hung_;
  }
  job_->begin(batch);
  const std::shared_ptr<Job> job = job_;

  const uint64_t late_ns = in_ns(limits_.late_after);
  const uint64_t stuck_ns = in_ns(limits_.stuck_after);
  const uint64_t end_ns = most ? monotonic_ns() + in_ns(*most) : UINT64_MAX;
  std::unique_lock lock(job->mutex);
  bool reading = (worker_ || start_worker()) && !cancelled_;
  if (reading) post(job);
  while (reading && !cancelled_) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= end_ns) break;
    if (job->in_hand != kNone && now_ns >= job->items[job->in_hand].began_ns + late_ns) {
      leave_behind(*job, outcome);
      if (job->has_more()) {
        reading = hung_->count() < hung_->limit && start_worker();
        if (reading) post(job);
      }
      continue;
    }
    uint64_t wake_ns = std::min(end_ns, now_ns + late_ns);
    if (job->in_hand == kNone && !job->has_more()) {
      // Only late ones are left, and perhaps a worker that is about to go.
      for (const Left& left : outcome.left) {
        Job::Item& item = job->items[left.item];
        if (item.state == State::late && now_ns >= item.began_ns + stuck_ns) {
          item.state = State::stuck;
          --job->late;
        }
      }
      const auto stuck = std::ranges::count(job->items, State::stuck, &Job::Item::state);
      if (job->late == 0 && job->workers <= static_cast<size_t>(stuck)) break;
      wake_ns = std::min(end_ns, now_ns + stuck_ns);
      for (const Left& left : outcome.left) {
        const Job::Item& item = job->items[left.item];
        if (item.state == State::late) wake_ns = std::min(wake_ns, item.began_ns + stuck_ns);
      }
    }
    job->changed.wait_for(lock, std::chrono::nanoseconds(wake_ns - now_ns));
  }
  job->closed = true;
  if (job->in_hand != kNone) leave_behind(*job, outcome);

  for (size_t i = 0; i < job->items.size(); ++i) {
    Job::Item& item = job->items[i];
    if (item.state == State::late) {
      item.state = State::stuck;
      --job->late;
    }
    outcome.ends[i] = item.state == State::read    ? ReadEnd::read
                      : item.state == State::stuck ? ReadEnd::stuck
                                                   : ReadEnd::refused;
    if (outcome.ends[i] == ReadEnd::refused) ++outcome.refused;
  }
  std::erase_if(outcome.left, [&](const Left& left) { return outcome.ends[left.item] != ReadEnd::stuck; });
}

}  // namespace kitty::collector
