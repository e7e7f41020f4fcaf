// The face of the layer: parses once, then renders JSON through an interpreter of its own each
// time.
//
// Strings of `data`, keys included, become user text; those of `constants` are the template's. Only
// variables that the template names are converted. Integers above 2^63-1 become floats.
#include "template/chat_template.h"

#include "template/eval.h"
#include "template/parser.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <climits>

namespace culet::chat {

struct ChatTemplate::Impl {
  std::unique_ptr<const ParsedTemplate> parsed;
  Limits limits;
};

ChatTemplate::~ChatTemplate() = default;

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMemoryPerOutput = 8;  // live bytes a rendering may need, as a multiple
constexpr size_t kLeastMemory = 1 << 20;

class Converter {
 public:
  Converter(const Factory& factory, bool user) : factory_(factory), user_(user) {}

  Result<Value> convert(const Json& json, int level) {
    switch (json.type()) {
      case Json::value_t::null:
        return Value(None{});
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<int64_t>());
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::number_unsigned: {
        const uint64_t n = json.get<uint64_t>();
        return n <= INT64_MAX ? Value(static_cast<int64_t>(n)) : Value(static_cast<double>(n));
      }
      case Json::value_t::string:
        return factory_.string(json.get_ref<const std::string&>(), user_);
      case Json::value_t::array:
      case Json::value_t::object:
        break;
      default:
        return fail(ErrorCode::kInvalidArgument, "are of a kind that JSON has no text for");
    }
    if (level >= factory_.max_height()) {
      return fail(ErrorCode::kExhausted,
                  "nest deeper than " + std::to_string(factory_.max_height()) + " levels");
    }
    return json.is_array() ? convert_array(json, level) : convert_object(json, level);
  }

 private:
  Result<Value> convert_array(const Json& json, int level) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json) {
      CULET_TRY(Value value, convert(item, level + 1));
      items.push_back(std::move(value));
    }
    return factory_.list(std::move(items));
  }

  Result<Value> convert_object(const Json& json, int level) {
    std::vector<std::pair<Value, Value>> items;
    items.reserve(json.size());
    for (auto at = json.begin(); at != json.end(); ++at) {
      CULET_TRY(Value key, factory_.string(at.key(), user_));
      CULET_TRY(Value value, convert(at.value(), level + 1));
      items.emplace_back(std::move(key), std::move(value));
    }
    return factory_.dict(std::move(items));
  }

  const Factory& factory_;
  bool user_;
};

// Adds the variables that the template names.
Result<void> add_variables(const Json& json, bool user, const Interpreter& in, Variables& out) {
  if (json.is_null()) return {};
  if (!json.is_object()) {
    return fail(ErrorCode::kInvalidArgument,
                "The variables of a chat template are not a JSON object; pass one.");
  }
  Converter converter(in.factory(), user);
  for (auto at = json.begin(); at != json.end(); ++at) {
    const Name* name = in.names().find(at.key());
    if (name == nullptr) continue;
    Result<Value> value = converter.convert(at.value(), 0);
    if (!value) {
      Error& e = value.error();
      e.message = "The values given to the chat template as '" + at.key() +
                  "' cannot be used: they " + e.message + ".";
      return tl::unexpected<Error>(std::move(e));
    }
    out[name->id] = std::move(*value);
  }
  return {};
}

std::vector<Piece> pieces_of(const Text& text) {
  std::vector<Piece> pieces;
  size_t from = 0;
  for (const Text::Run& run : text.runs()) {
    pieces.push_back({text.bytes().substr(from, run.end - from), !run.user});
    from = run.end;
  }
  return pieces;
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source,
                                                                Limits limits) {
  limits.depth = std::clamp(limits.depth, 1, 1000);
  auto impl = std::make_shared<Impl>();
  CULET_TRY(impl->parsed, parse_template(source, limits.depth));
  impl->limits = limits;
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::vector<Piece>> ChatTemplate::render(const Json& data, const Json& constants) const {
  const Limits& limits = impl_->limits;
  const size_t most = SIZE_MAX / kMemoryPerOutput;
  const size_t memory = std::max(kLeastMemory, std::min(limits.output, most) * kMemoryPerOutput);
  Budget budget(limits.fuel, memory);
  Interpreter interpreter(*impl_->parsed, budget, limits.depth, limits.output);
  Variables variables;
  CULET_TRY_VOID(add_variables(data, true, interpreter, variables));
  CULET_TRY_VOID(add_variables(constants, false, interpreter, variables));
  interpreter.set_variables(std::move(variables));
  CULET_TRY(const Text text, interpreter.run());
  return pieces_of(text);
}

}  // namespace culet::chat
