#include "quant/tensor_type.h"

namespace culet::quant {
namespace {

constexpr TypeInfo kTypes[] = {
#define CULET_FORMAT(id, name, block, bytes, readable) \
  {TensorType::name, #name, block, bytes, readable},
#include "quant/formats.def"
#undef CULET_FORMAT
};

}  // namespace

const TypeInfo* type_info(uint32_t id) {
  for (const TypeInfo& info : kTypes) {
    if (uint32_t(info.type) == id) return &info;
  }
  return nullptr;
}

const TypeInfo& type_info(TensorType type) { return *type_info(uint32_t(type)); }

}  // namespace culet::quant
