// Which tensors of a checkpoint become which tensors of the file, by the rows of a family.
#pragma once

#include "convert/checkpoint.h"
#include "convert/expression.h"
#include "convert/family.h"
#include "convert/stream.h"
#include "culet/result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace culet::convert {

// One tensor of the file: its rows, each where it lies in the checkpoint.
struct MappedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // outermost first
  std::string_view dtype;
  std::vector<const std::byte*> rows{};  // a vector has a row for each value
  uint64_t columns = 1;                  // values of a row
  bool plus_one = false;
  std::vector<float> values{};                       // of one that follows from the configuration
  std::vector<const format::SafeTensor*> sources{};  // for release()

  uint64_t elements() const;
  std::vector<uint64_t> dims() const;  // as GGUF has them: the contiguous one first
  ReadValues reader() const;
};

// Errors: kNotFound (a tensor that the family needs is not there), kUnsupported (one that no row
// reads, a dtype that holds no weights, experts of different shapes), those of the expressions.
Result<std::vector<MappedTensor>> map_tensors(const Family& family, const Scope& scope,
                                              int64_t layers, const Checkpoint& checkpoint);

// Whether the tensors have the shapes that the configuration gives (the family's `shape` rows).
// Error: kCorrupt, with both shapes.
Result<void> check_shapes(const Family& family, const Scope& scope, int64_t layers,
                          const std::vector<MappedTensor>& tensors);

}  // namespace culet::convert
