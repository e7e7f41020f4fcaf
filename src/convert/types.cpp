// Takes the tensors of a file, what was asked for and the tables; gives a type for each.
//
// In order: what stays as it is, the mix's type, the rows of the mix, the user's rules; the last
// that fits decides. Then types that rows do not divide into give way to those that stand in.
#include "convert/types.h"

#include "quant/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>

namespace culet::convert {
namespace {

using quant::TensorType;

struct Role {
  std::string_view role, pattern;
};
#define CULET_ROLE(role, pattern) {role, pattern},
#define CULET_STAYS(pattern)
#define CULET_WIDE(pattern)
constexpr Role kRoles[] = {
#include "convert/roles.def"
};
#undef CULET_ROLE
#undef CULET_STAYS
#define CULET_ROLE(role, pattern)
#define CULET_STAYS(pattern) pattern,
constexpr std::string_view kStays[] = {
#include "convert/roles.def"
};
#undef CULET_STAYS
#undef CULET_WIDE
#define CULET_STAYS(pattern)
#define CULET_WIDE(pattern) pattern,
constexpr std::string_view kWide[] = {
#include "convert/roles.def"
};
#undef CULET_ROLE
#undef CULET_STAYS
#undef CULET_WIDE

enum class Layers : uint8_t { kAll, kSome, kFirstTwo, kFirstFour, kFirstEighth, kFirstSixteenth };

struct Mix {
  std::string_view name;
  TensorType type;
  uint32_t file_type;
};
struct MixRow {
  std::string_view mix, role;
  Layers layers;
  TensorType type;
};
struct StandIn {
  TensorType type, other;
};
#define CULET_MIX(name, type, file_type) {name, TensorType::type, file_type},
#define CULET_MIX_ROW(mix, role, layers, type)
#define CULET_STANDS_IN(type, other)
constexpr Mix kMixes[] = {
#include "convert/mixes.def"
};
#undef CULET_MIX
#undef CULET_MIX_ROW
#define CULET_MIX(name, type, file_type)
#define CULET_MIX_ROW(mix, role, layers, type) {mix, role, Layers::layers, TensorType::type},
constexpr MixRow kRows[] = {
#include "convert/mixes.def"
};
#undef CULET_MIX_ROW
#undef CULET_STANDS_IN
#define CULET_MIX_ROW(mix, role, layers, type)
#define CULET_STANDS_IN(type, other) {TensorType::type, TensorType::other},
constexpr StandIn kStandIns[] = {
#include "convert/mixes.def"
};
#undef CULET_MIX
#undef CULET_MIX_ROW
#undef CULET_STANDS_IN

bool is_mix(const Mix& mix) { return mix.name != quant::type_info(mix.type).name; }

const Mix* find_mix(std::string_view name) {
  for (const Mix& mix : kMixes) {
    if (mix.name == name) return &mix;
  }
  return nullptr;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// ---------------------------------------------------------------- tensors and roles

std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  int64_t layer = -1;
  if (!name.starts_with(kBlock)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kBlock.size(), end, layer);
  if (error != std::errc() || at == end || *at != '.' || layer < 0) return std::nullopt;
  return layer;
}

bool in_layers(Layers layers, int64_t i, int64_t count) {
  const int64_t eighth = count / 8;
  switch (layers) {
    case Layers::kAll:
      return true;
    case Layers::kSome:
      return i < eighth || i >= 7 * count / 8 || (i - eighth) % 3 == 2;
    case Layers::kFirstTwo:
      return i < 2;
    case Layers::kFirstFour:
      return i < 4;
    case Layers::kFirstEighth:
      return i < eighth;
    case Layers::kFirstSixteenth:
      return i < count / 16;
  }
  return false;
}

// Vectors, whatever number of dimensions of one they have besides.
bool is_vector(const TensorShape& tensor) {
  return std::count_if(tensor.dims.begin(), tensor.dims.end(),
                       [](uint64_t dim) { return dim > 1; }) < 2;
}

bool fits_any(std::string_view name, std::span<const std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](std::string_view pattern) { return matches(name, pattern); });
}

// What is known of the whole file.
struct Model {
  int64_t layers = 0;
  bool tied = true;  // there is no output.weight: the embedding is the head, too

  bool has_role(const TensorShape& tensor, std::string_view role) const {
    return std::any_of(std::begin(kRoles), std::end(kRoles), [&](const Role& row) {
      const bool same = row.role == role || (tied && role == "head" && row.role == "embd");
      return same && matches(tensor.name, row.pattern);
    });
  }
};

Model look_at(std::span<const TensorShape> tensors) {
  Model model;
  for (const TensorShape& tensor : tensors) {
    model.layers = std::max(model.layers, layer_of(tensor.name).value_or(-1) + 1);
    model.tied = model.tied && tensor.name != "output.weight";
  }
  return model;
}

// ---------------------------------------------------------------- rules

struct Rule {
  std::string_view what;
  bool is_role;
  TensorType type;
  bool used = false;

  bool fits(const Model& model, const TensorShape& tensor) const {
    return is_role ? model.has_role(tensor, what) : matches(tensor.name, what);
  }
};

Result<Rule> read_rule(const TensorTypeRule& rule) {
  const Mix* type = find_mix(rule.type);
  if (type == nullptr || is_mix(*type)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' for the tensors '{}' is not a tensor type; the types are {}",
                            rule.type, rule.tensors, joined(tensor_types())));
  }
  const bool is_role = std::any_of(std::begin(kRoles), std::end(kRoles),
                                   [&](const Role& row) { return row.role == rule.tensors; });
  return Rule{rule.tensors, is_role, type->type};
}

tl::unexpected<Error> unused(const Rule& rule) {
  if (rule.is_role) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("this model has no tensor with the role {}; leave that rule out", rule.what));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no tensor is called '{}'; use a name that culet explain shows, with * "
                          "for any characters, or a role: {}",
                          rule.what, joined(tensor_roles())));
}

// ---------------------------------------------------------------- rows that do not divide

TensorType stand_in(TensorType type, uint64_t row) {
  const auto divides = [row](TensorType t) {
    return row % uint64_t(quant::type_info(t).block) == 0;
  };
  if (divides(type)) return type;
  for (const StandIn& entry : kStandIns) {
    if (entry.type == type && divides(entry.other)) return entry.other;
  }
  return TensorType::F16;
}

// One note for all tensors of a kind: names without their layer, row length, both types.
class StandInNotes {
 public:
  void add(const TensorShape& tensor, TensorType wanted, TensorType used) {
    std::string name(tensor.name);
    if (const auto layer = layer_of(name)) {
      name.replace(0, fmt::format("blk.{}", *layer).size(), "blk.*");
    }
    ++count_[{std::move(name), tensor.dims[0], wanted, used}];
  }
  std::vector<std::string> take() const {
    std::vector<std::string> notes;
    for (const auto& [key, count] : count_) {
      const auto& [name, row, wanted, used] = key;
      const quant::TypeInfo& info = quant::type_info(wanted);
      notes.push_back(
          fmt::format("{} ({} tensor{}) gets {} instead of {}: its rows of {} values are "
                      "no multiple of {}",
                      name, count, count == 1 ? "" : "s", quant::type_info(used).name, info.name,
                      row, info.block));
    }
    return notes;
  }

 private:
  std::map<std::tuple<std::string, uint64_t, TensorType, TensorType>, int> count_;
};

// ---------------------------------------------------------------- one tensor

TensorType type_in_mix(const Mix& mix, const Model& model, const TensorShape& tensor) {
  if (stays(tensor)) return tensor.type;
  const bool blocks = quant::type_info(mix.type).block > 1;
  if (blocks && fits_any(tensor.name, kWide)) return tensor.type;
  TensorType type = mix.type;
  const int64_t layer = layer_of(tensor.name).value_or(0);
  for (const MixRow& row : kRows) {
    if (row.mix == mix.name && in_layers(row.layers, layer, model.layers) &&
        model.has_role(tensor, row.role)) {
      type = row.type;
    }
  }
  return type;
}

}  // namespace

bool stays(const TensorShape& tensor) {
  return is_vector(tensor) || !tensor.name.ends_with(".weight") || fits_any(tensor.name, kStays);
}

bool matches(std::string_view name, std::string_view pattern) {
  size_t at = 0, in = 0;
  size_t star = std::string_view::npos, resume = 0;  // the last *, and where it ends in the name
  while (at < name.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      resume = at;
    } else if (in < pattern.size() && pattern[in] == name[at]) {
      ++in;
      ++at;
    } else if (star != std::string_view::npos) {
      in = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in) == std::string_view::npos;
}

Result<TypeChoice> choose_types(std::span<const TensorShape> tensors, std::string_view type,
                                std::span<const TensorTypeRule> rules) {
  const Mix* mix = find_mix(type);
  if (mix == nullptr) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a type; the types are {}",
                                                         type, joined(quantization_types())));
  }
  std::vector<Rule> own;
  for (const TensorTypeRule& rule : rules) {
    CULET_TRY(own.emplace_back(), read_rule(rule));
  }
  const Model model = look_at(tensors);
  TypeChoice choice{.file_type = mix->file_type};
  StandInNotes notes;
  for (const TensorShape& tensor : tensors) {
    TensorType wanted = type_in_mix(*mix, model, tensor);
    for (Rule& rule : own) {
      if (!rule.fits(model, tensor)) continue;
      rule.used = true;
      wanted = rule.type;
    }
    const TensorType used = wanted == tensor.type ? wanted : stand_in(wanted, tensor.dims[0]);
    if (used != wanted) notes.add(tensor, wanted, used);
    choice.types.push_back(used);
  }
  for (const Rule& rule : own) {
    if (!rule.used) return unused(rule);
  }
  choice.notes = notes.take();
  return choice;
}

}  // namespace culet::convert

namespace culet {

std::vector<std::string> quantization_types() {
  std::vector<std::string> names;
  for (const convert::Mix& mix : convert::kMixes) names.emplace_back(mix.name);
  return names;
}

std::vector<std::string> tensor_types() {
  std::vector<std::string> names;
  for (const convert::Mix& mix : convert::kMixes) {
    if (!convert::is_mix(mix)) names.emplace_back(mix.name);
  }
  return names;
}

std::vector<std::string> tensor_roles() {
  std::vector<std::string> names;
  for (const convert::Role& row : convert::kRoles) {
    if (std::find(names.begin(), names.end(), row.role) == names.end()) {
      names.emplace_back(row.role);
    }
  }
  return names;
}

}  // namespace culet
