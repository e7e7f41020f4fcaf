// What an operation knows beside its operands: one struct for each kind of operation, named in the
// second column of plan/ops.def. Defaults are the neutral values.
#pragma once

#include "base/check.h"

#include <cstdint>
#include <utility>
#include <variant>

namespace culet::plan {

enum class Activation : uint8_t { kNone, kSilu, kGelu, kGeluErf, kRelu, kSigmoid, kTanh };
enum class Arithmetic : uint8_t { kAdd, kSub, kMul, kDiv };
enum class Mask : uint8_t { kCausal, kFull, kBand };

constexpr int32_t kNone = -1;  // an index of nothing

struct NoAttributes {};

struct EmbedAttributes {
  enum class By : uint8_t { kToken, kPosition, kType };
  By by = By::kToken;  // what picks the row
};
struct NormAttributes {
  float eps = 0;
};
struct RopeAttributes {
  int32_t rope = kNone;   // index into Plan::ropes
  bool adjacent = false;  // pairs (2i, 2i+1); else (i, i + dims/2)
  bool sinks = false;     // angles of the sink position (streams)
};
struct AppendAttributes {
  int32_t cache = kNone;  // index into Plan::caches
};
struct AttendAttributes {
  int32_t cache = kNone;  // index into Plan::caches (donor already resolved); kNone: its own (k, v)
  int32_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  float scale = 1, softcap = 0;
  Mask mask = Mask::kCausal;
  int32_t band = 0;  // kBand
};
struct ArithmeticAttributes {
  Arithmetic arithmetic = Arithmetic::kAdd;
  double scalar = 0;          // the second operand, where it is neither a value nor a tensor
  bool scalar_first = false;  // constant - x, constant / x
};
struct ActivationAttributes {
  Activation activation = Activation::kNone;
};
struct SoftcapAttributes {
  double cap = 0;
};
struct ColumnsAttributes {  // [first, first + count)
  int32_t first = 0, count = 0;
};
struct RouteAttributes {
  int32_t top = 0;  // how many experts a token gets
  bool sigmoid = false, renormalise = false;
  float scale = 1;  // of the weights
};
struct ExpertsAttributes {
  Activation activation = Activation::kNone;
  bool quantize_hidden = false;  // rows between up and down become int8
};
struct PoolAttributes {
  bool mean = false;  // the rows' mean, not the first
};
struct ShortConvAttributes {
  int32_t state = kNone;  // index into Plan::states
};
struct SuppressAttributes {
  int32_t tokens = kNone;  // index into Plan::token_lists
};

// The struct of one operation. Asking for another operation's is a broken promise: as() aborts.
class Attributes {
 public:
  using Variant =
      std::variant<NoAttributes, EmbedAttributes, NormAttributes, RopeAttributes, AppendAttributes,
                   AttendAttributes, ArithmeticAttributes, ActivationAttributes, SoftcapAttributes,
                   ColumnsAttributes, RouteAttributes, ExpertsAttributes, PoolAttributes,
                   ShortConvAttributes, SuppressAttributes>;

  Attributes() = default;
  template <class T>
    requires requires(const Variant& v) { std::get_if<T>(&v); }
  Attributes(T attributes) : value_(std::move(attributes)) {}  // NOLINT: of one operation

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }
  template <class T>
  const T& as() const {
    const T* found = std::get_if<T>(&value_);
    CULET_CHECK(found != nullptr);
    return *found;
  }
  template <class T>
  T& as() {
    return const_cast<T&>(std::as_const(*this).as<T>());
  }
  // Calls with the struct itself: what has no overload for one does not compile.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), value_);
  }
  bool same_kind(const Attributes& other) const { return value_.index() == other.value_.index(); }

 private:
  Variant value_;
};

}  // namespace culet::plan
