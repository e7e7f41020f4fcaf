// Logits that forks share until one of them computes new ones.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace culet::engine {

// A copy shares the values. What was ever shared is not written again: set() then takes new memory.
// A buffer belongs to one thread at a time; copies may live on different threads.
class LogitsBuffer {
 public:
  LogitsBuffer() = default;
  LogitsBuffer(const LogitsBuffer& other) : values_(other.values_), shared_(true) {
    other.shared_.store(true, std::memory_order_relaxed);
  }
  LogitsBuffer& operator=(const LogitsBuffer& other) {
    LogitsBuffer copy(other);
    swap(copy);
    return *this;
  }

  explicit operator bool() const { return values_ != nullptr && !values_->empty(); }
  std::span<const float> values() const {
    return values_ ? std::span<const float>(*values_) : std::span<const float>();
  }
  void set(std::span<const float> values) {
    if (values_ == nullptr || shared_.load(std::memory_order_relaxed)) {
      values_ = std::make_shared<std::vector<float>>();
      shared_.store(false, std::memory_order_relaxed);
    }
    values_->assign(values.begin(), values.end());
  }
  void clear() {
    if (*this) set({});
  }
  void swap(LogitsBuffer& other) noexcept {
    std::swap(values_, other.values_);
    const bool own = shared_.load(std::memory_order_relaxed);
    shared_.store(other.shared_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    other.shared_.store(own, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<std::vector<float>> values_;
  mutable std::atomic<bool> shared_{false};
};

}  // namespace culet::engine
