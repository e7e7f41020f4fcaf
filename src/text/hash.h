// Hashing for tables that are filled from untrusted files.
//
// The hash is keyed with a number drawn once per table, so a file cannot aim at its buckets. The
// key changes how fast a lookup is, never what it answers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace culet::text {

uint64_t new_hash_key();
uint64_t hash_bytes(std::string_view bytes, uint64_t key);
uint64_t hash_number(uint64_t number, uint64_t key);

// uint64 -> int32, open addressing.
class NumberMap {
 public:
  static constexpr int32_t kNone = -1;

  NumberMap();
  void reserve(size_t entries);
  // False, and nothing changes, when the key is there already. value >= 0.
  bool insert(uint64_t number, int32_t value);
  int32_t find(uint64_t number) const {
    for (size_t i = hash_number(number, key_) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].value == kNone) return kNone;
      if (slots_[i].number == number) return slots_[i].value;
    }
  }

 private:
  struct Slot {
    uint64_t number;
    int32_t value;
  };
  void resize(size_t slots);

  std::vector<Slot> slots_;
  size_t used_ = 0;
  uint64_t mask_ = 0;
  uint64_t key_;
};

inline uint64_t hash_number(uint64_t number, uint64_t key) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(number ^ key) * 0x9e3779b97f4a7c15u;
  return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + key;
}

}  // namespace culet::text
