// Bounded reads of little-endian bytes, and sizes that cannot wrap.
//
// A Cursor never reads past its end: a read that does not fit answers false and moves nothing.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace culet::base {

// *out = a * b or a + b; false (and *out unspecified) when the result does not fit.
template <std::integral T>
[[nodiscard]] constexpr bool checked_mul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}
template <std::integral T>
[[nodiscard]] constexpr bool checked_add(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}

// The little-endian number at p; the caller has checked that sizeof(T) bytes are there.
template <class T>
  requires std::is_arithmetic_v<T>
T load_le(const std::byte* p) {
  std::byte raw[sizeof(T)];
  std::memcpy(raw, p, sizeof(T));
  if constexpr (std::endian::native == std::endian::big) {
    for (size_t i = 0; i < sizeof(T) / 2; ++i) {
      const std::byte swapped = raw[i];
      raw[i] = raw[sizeof(T) - 1 - i];
      raw[sizeof(T) - 1 - i] = swapped;
    }
  }
  T value;
  std::memcpy(&value, raw, sizeof(T));
  return value;
}

class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::byte* data() const { return bytes_.data() + position_; }  // next unread byte

  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] bool read(T* out) {
    if (remaining() < sizeof(T)) return false;
    *out = load_le<T>(data());
    position_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool take(uint64_t n, std::span<const std::byte>* out) {
    if (remaining() < n) return false;
    *out = bytes_.subspan(position_, n);
    position_ += n;
    return true;
  }
  [[nodiscard]] bool skip(uint64_t n) {
    if (remaining() < n) return false;
    position_ += n;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace culet::base
