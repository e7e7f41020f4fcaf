// Which type each tensor of a file gets: the tables of roles.def and mixes.def, and the user's
// rules.
#pragma once

#include "culet/convert.h"
#include "culet/result.h"
#include "format/gguf.h"
#include "quant/tensor_type.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::convert {

struct TypeChoice {
  std::vector<quant::TensorType> types{};  // of each tensor
  uint32_t file_type = 0;                  // general.file_type
  std::vector<std::string> notes{};        // rows that do not divide into blocks
};

// A tensor as the choice sees it; dims as in a GGUF file.
struct TensorShape {
  std::string_view name;
  quant::TensorType type;
  std::span<const uint64_t> dims;
};

// Errors: as quantize_model has them for types, roles and patterns.
Result<TypeChoice> choose_types(std::span<const TensorShape> tensors, std::string_view type,
                                std::span<const TensorTypeRule> rules);

// Whether it is no matrix of products, and keeps its type whatever type the others get.
bool stays(const TensorShape& tensor);

// Whether a name fits a pattern, in which * stands for any characters, also none.
bool matches(std::string_view name, std::string_view pattern);

}  // namespace culet::convert
