#include "comm/shared_signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <limits>

namespace cleave {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
static_assert(std::atomic<uint32_t>::is_always_lock_free);

void SharedSignal::WakeAll() {
  // Not the PRIVATE operation: sleepers may be other processes.
  syscall(SYS_futex, &value, FUTEX_WAKE, std::numeric_limits<int32_t>::max(), nullptr, nullptr, 0);
}

void SharedSignal::SleepWhile(uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec timeout = {.tv_sec = static_cast<time_t>(seconds.count()),
                            .tv_nsec = static_cast<long>((at_most - seconds).count())};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (value.load(std::memory_order_seq_cst) == seen) {
    syscall(SYS_futex, &value, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace cleave
