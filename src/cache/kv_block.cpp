// How large the blocks of a layer are, and where a token lies in one.
#include "cache/kv_block.h"

#include "base/check.h"

#include <cstring>

namespace culet::cache {
namespace {

size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t bytes_of(kernels::KvType type, int32_t kv_heads, int32_t dim) {
  CULET_CHECK(type < kernels::kKvTypeCount);
  return round64(static_cast<size_t>(kv_heads) *
                 static_cast<size_t>(kernels::kv_head_bytes(type, dim)));
}

}  // namespace

size_t KvShape::k_block_bytes() const { return bytes_of(k_type, kv_heads, head_dim); }

size_t KvShape::v_block_bytes() const { return bytes_of(v_type, kv_heads, value_dim); }

size_t KvShape::token_bytes() const {
  return static_cast<size_t>(kv_heads) *
         static_cast<size_t>(kernels::kv_head_bytes(k_type, head_dim) +
                             kernels::kv_head_bytes(v_type, value_dim)) /
         kernels::kKvBlockRows;
}

// Elements of `size` bytes: keys lie [dim][32] a head, values [32][dim], and behind them, in the
// same two orders, the f16 scales of the types that have some.
void clear_tokens(const KvShape& shape, int32_t first_token, std::span<std::byte> block) {
  const auto first = static_cast<size_t>(first_token), all = size_t{kernels::kKvBlockRows};
  const auto columns = [&](std::byte* at, size_t n, size_t size) {
    for (size_t i = 0; i < n; ++i)
      std::memset(at + (i * all + first) * size, 0, (all - first) * size);
  };
  const auto tail = [&](std::byte* at, size_t size) {
    std::memset(at + first * size, 0, (all - first) * size);
  };
  struct Part {
    size_t head, size, elements, scales;  // bytes: of a head, of an element, of all of them
  };
  const auto part = [&](kernels::KvType type, int32_t dim) {
    const auto head = static_cast<size_t>(kernels::kv_head_bytes(type, dim));
    const size_t size = static_cast<size_t>(kernels::kv_head_bytes(type, 32)) / (32 * all);
    const size_t elements = static_cast<size_t>(dim) * all * size;
    return Part{head, size, elements, head - elements};
  };
  const Part k = part(shape.k_type, shape.head_dim), v = part(shape.v_type, shape.value_dim);
  std::byte* keys = block.data();
  std::byte* values = block.data() + shape.k_block_bytes();
  for (int32_t h = 0; h < shape.kv_heads; ++h, keys += k.head, values += v.head) {
    columns(keys, static_cast<size_t>(shape.head_dim), k.size);
    columns(keys + k.elements, k.scales / (2 * all), 2);
    tail(values, v.elements / all);
    tail(values + v.elements, v.scales / all);
  }
  // What rounds keys and values up to 64 bytes is never written either.
  std::memset(keys, 0, static_cast<size_t>(block.data() + shape.k_block_bytes() - keys));
  std::memset(values, 0, static_cast<size_t>(block.data() + block.size() - values));
}

}  // namespace culet::cache
