// What a model computes, by definition: an interpreter of its plan in float64, one row at a time.
//
// It shares with the engine the compiled plan (precise, unfused) and the dequantized numbers of the
// file, and nothing else: no kernels, no cache, no passes. The whole input is one timeline from row
// 0; what a row sees in a layer is one predicate of two row numbers, and a query is turned by its
// distance to each key it meets, so the second query that the engine makes for sink keys has no
// part in it. A draft model's step is the row behind the input, which sees its target's keys.
#pragma once

#include "culet/culet.h"
#include "format/gguf.h"
#include "plan/compile.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace culet::test {

using DoubleRows = std::vector<std::vector<double>>;

class Oracle {
 public:
  // Throws std::runtime_error: the file cannot be read or compiled.
  // target: of a draft model; outlives it.
  explicit Oracle(const std::string& path, const std::string& arch_dir = "",
                  const Oracle* target = nullptr);

  // Logits of these rows (ascending) when the input is `tokens`. Rows of the input that none of
  // them depends on are not computed. Throws std::runtime_error for an operation, or a use of one,
  // that it does not know.
  DoubleRows logits(std::span<const Token> tokens, std::span<const int64_t> rows,
                    const std::optional<StreamOptions>& stream = {}) const;
  // Of every row.
  DoubleRows logits(std::span<const Token> tokens,
                    const std::optional<StreamOptions>& stream = {}) const;
  // Of a draft model: the logits and the hidden row of a step behind `tokens` with this token and
  // row.
  struct Draft {
    std::vector<double> logits, hidden;
  };
  Draft draft(std::span<const Token> tokens, Token token, std::span<const double> hidden,
              const std::optional<StreamOptions>& stream = {}) const;

 private:
  friend class Pass;
  const std::vector<double>& tensor(plan::TensorId id) const;

  const Oracle* target_;
  format::GgufFile file_;
  plan::Compiled compiled_;
  std::vector<std::vector<double>> tensors_;   // [tensor]
  std::vector<std::vector<double>> matrices_;  // [tensor] of products, transposed: [in][out]
};

}  // namespace culet::test
