// A multiply-and-fold hash over 8 bytes at a time (the construction of wyhash), keyed, and the one
// open-addressing table built on it: half full at most, so that a lookup is one or two probes.
#include "text/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace culet::text {
namespace {

uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* p, size_t n) {
  uint64_t word = 0;
  std::memcpy(&word, p, n);
  return word;
}

}  // namespace

uint64_t new_hash_key() {
  uint64_t key = 0x2545f4914f6cdd1du;
  // Without entropy the fixed key stays: slower on hostile files, never wrong.
  if (getentropy(&key, sizeof key) != 0) return 0x2545f4914f6cdd1du;
  return key;
}

uint64_t hash_bytes(std::string_view bytes, uint64_t key) {
  uint64_t h = key ^ fold(bytes.size() ^ 0xa0761d6478bd642fu, key | 1);
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) h = fold(h ^ load(p, 8), 0xe7037ed1a0b428dbu ^ key);
  if (left > 0) h = fold(h ^ load(p, left), 0x8ebc6af09c88c6e3u ^ key);
  return fold(h, 0x589965cc75374cc3u);
}

NumberMap::NumberMap() : key_(new_hash_key()) { resize(16); }

void NumberMap::reserve(size_t entries) {
  const size_t slots = std::bit_ceil(entries * 2 + 16);
  if (slots > slots_.size()) resize(slots);
}

void NumberMap::resize(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots, Slot{0, kNone}));
  mask_ = slots - 1;
  for (const Slot& slot : old) {
    if (slot.value == kNone) continue;
    size_t i = hash_number(slot.number, key_) & mask_;
    while (slots_[i].value != kNone) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

bool NumberMap::insert(uint64_t number, int32_t value) {
  if ((used_ + 1) * 2 > slots_.size()) resize(slots_.size() * 2);
  size_t i = hash_number(number, key_) & mask_;
  for (; slots_[i].value != kNone; i = (i + 1) & mask_) {
    if (slots_[i].number == number) return false;
  }
  slots_[i] = {number, value};
  ++used_;
  return true;
}

}  // namespace culet::text
