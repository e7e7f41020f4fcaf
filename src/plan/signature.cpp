// Turns the signature column of ops.def into rules. The column is our own text, so a mistake in it
// is a broken promise, not a user's error.
#include "plan/signature.h"

#include "base/check.h"
#include "plan/hyperparameters.h"

#include <fmt/format.h>

namespace culet::plan {
namespace {

struct SignatureRow {
  OpKind kind;
  std::string_view name, signature, meaning;
};
constexpr SignatureRow kSignatureRows[] = {
#define CULET_OP(name, attributes, signature, meaning) {OpKind::name, #name, signature, meaning},
#include "plan/ops.def"
#undef CULET_OP
};

OperandRule operand(std::string_view word) {
  using K = OperandRule::Kind;
  static constexpr std::pair<std::string_view, K> kKinds[] = {
      {"v", K::kValue},          {"v*", K::kValues},
      {"w", K::kTensor},         {"w?", K::kOptionalTensor},
      {"f", K::kHyperparameter}, {"cache", K::kCache},
      {"state", K::kState},      {"cache_or_kv", K::kCacheOrPair}};
  for (const auto& [name, kind] : kKinds)
    if (name == word) return {kind};
  CULET_CHECK(false && "unknown operand kind in ops.def");
}

AttributeRule attribute(std::string_view word) {
  using K = AttributeRule::Kind;
  static constexpr std::pair<std::string_view, K> kKinds[] = {
      {"num", K::kNumber}, {"int", K::kInteger},   {"flag", K::kFlag},
      {"word", K::kWord},  {"tensor", K::kTensor}, {"mask", K::kMask}};
  AttributeRule a;
  const size_t colon = word.find(':');
  a.name = word.substr(0, colon);
  std::string_view kind = word.substr(colon + 1);
  if (const size_t equal = kind.find('='); equal != std::string_view::npos) {
    a.has_default = true;
    a.default_text = kind.substr(equal + 1);
    kind = kind.substr(0, equal);
  }
  for (const auto& [name, k] : kKinds)
    if (name == kind) return a.kind = k, a;
  CULET_CHECK(false && "unknown attribute kind in ops.def");
}

Signature parse(const SignatureRow& row) {
  Signature s{row.kind, row.name, row.meaning, !row.signature.empty(), {}, {}};
  std::string_view rest = row.signature;
  while (!rest.empty()) {
    const size_t end = rest.find(' ');
    const std::string_view word = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (word.find(':') == std::string_view::npos)
      s.operands.push_back(operand(word));
    else
      s.attributes.push_back(attribute(word));
  }
  return s;
}

}  // namespace

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> kAll = [] {
    std::vector<Signature> all;
    for (const SignatureRow& row : kSignatureRows) all.push_back(parse(row));
    return all;
  }();
  return kAll;
}

std::string operand_text(const Signature& s) {
  using K = OperandRule::Kind;
  static constexpr std::pair<K, std::string_view> kTexts[] = {
      {K::kValue, "a value"},           {K::kValues, "values"},
      {K::kTensor, "a tensor"},         {K::kOptionalTensor, "a tensor or none"},
      {K::kHyperparameter, "a number"}, {K::kCache, "a cache"},
      {K::kState, "a state"},           {K::kCacheOrPair, "a cache or (k, v)"}};
  std::string out;
  for (const OperandRule& r : s.operands)
    for (const auto& [kind, text] : kTexts)
      if (kind == r.kind) out += (out.empty() ? "" : ", ") + std::string(text);
  return out;
}

const Signature* find_signature(std::string_view name) {
  for (const Signature& s : signatures())
    if (s.writable && s.name == name && s.kind != OpKind::append && s.kind != OpKind::arithmetic)
      return &s;
  return nullptr;
}

std::string unknown_operation(std::string_view name) {
  std::vector<std::string> known;
  for (const Signature& s : signatures())
    if (s.writable) known.emplace_back(s.name);
  const std::string near = nearest(name, known);
  return near.empty()
             ? fmt::format("there is no operation '{}' (docs/formats/arch.md lists them)", name)
             : fmt::format("there is no operation '{}'; did you mean '{}'?", name, near);
}

std::string_view op_name(OpKind kind) { return kSignatureRows[static_cast<size_t>(kind)].name; }

Attributes attributes_of(OpKind kind) {
  switch (kind) {
#define CULET_OP(name, attributes, ...) \
  case OpKind::name:                    \
    return attributes##Attributes{};
#include "plan/ops.def"
#undef CULET_OP
  }
  return {};
}

Op make_op(OpKind kind, int32_t layer, int32_t line) {
  Op op;
  op.kind = kind;
  op.layer = layer;
  op.line = line;
  op.attr = attributes_of(kind);
  return op;
}

int32_t cache_of(const Op& op) {
  if (const auto* append = op.attr.get_if<AppendAttributes>()) return append->cache;
  if (const auto* attend = op.attr.get_if<AttendAttributes>()) return attend->cache;
  return kNone;
}

}  // namespace culet::plan
