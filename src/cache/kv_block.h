// The shape of a block: the keys and values of 32 tokens of one layer.
#pragma once

#include "kernels/kernels.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace culet::cache {

using Position = int64_t;

constexpr int64_t kBlockTokens = kernels::kKvBlockRows;

// The keys lie first, then the values, each rounded up to 64 bytes.
struct KvShape {
  kernels::KvType k_type = kernels::kKvF16, v_type = kernels::kKvF16;
  int32_t kv_heads = 0, head_dim = 0, value_dim = 0;
  size_t k_block_bytes() const;  // of the keys of one block
  size_t v_block_bytes() const;
  size_t block_bytes() const { return k_block_bytes() + v_block_bytes(); }
  size_t token_bytes() const;  // of one token, without what rounding adds to a block
};

// Makes tokens [first, 32) of a block's bytes (keys, then values) zero.
void clear_tokens(const KvShape& shape, int32_t first, std::span<std::byte> block);

}  // namespace culet::cache
