// The face of the layer: parses once, then renders JSON through an interpreter of its own each
// time.
//
// Strings of `data`, keys included, become user text unless a mark says otherwise; those of
// `constants` are the template's. Only variables that the template names are converted. Integers
// above 2^63-1 become floats.
#include "template/chat_template.h"

#include "template/eval.h"
#include "template/parser.h"
#include "template/traits.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <climits>
#include <mutex>

namespace culet::chat {

struct ChatTemplate::Impl {
  std::string source;
  std::unique_ptr<const ParsedTemplate> parsed;
  Limits limits;
  mutable std::once_flag probed;
  mutable ChatTraits traits;  // guarded by `probed`
};

ChatTemplate::~ChatTemplate() = default;

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMemoryPerOutput = 8;  // live bytes a rendering may need, as a multiple
constexpr size_t kLeastMemory = 1 << 20;

class Converter {
 public:
  // marks: of a conversation's data; null: the text counts as the template's.
  Converter(const Factory& factory, const Marks* marks) : factory_(factory), marks_(marks) {}

  Result<Value> convert(const Json& json, int level, Mark mark = {}) {
    mark.program = false;
    if (marks_ != nullptr) {
      if (const auto at = marks_->find(&json); at != marks_->end()) mark = at->second;
    }
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
        return factory_.string(json.get_ref<const std::string&>(), source(mark, mark.program));
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
    return json.is_array() ? convert_array(json, level, mark) : convert_object(json, level, mark);
  }

 private:
  Source source(const Mark& mark, bool program) const {
    return {marks_ != nullptr && !program, mark.origin};
  }

  Result<Value> convert_array(const Json& json, int level, const Mark& mark) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json) {
      CULET_TRY(Value value, convert(item, level + 1, mark));
      items.push_back(std::move(value));
    }
    return factory_.list(std::move(items));
  }

  Result<Value> convert_object(const Json& json, int level, const Mark& mark) {
    std::vector<std::pair<Value, Value>> items;
    items.reserve(json.size());
    for (auto at = json.begin(); at != json.end(); ++at) {
      const bool program = mark.program_keys && is_plain_word(at.key());
      CULET_TRY(Value key, factory_.string(at.key(), source(mark, program)));
      CULET_TRY(Value value, convert(at.value(), level + 1, mark));
      items.emplace_back(std::move(key), std::move(value));
    }
    return factory_.dict(std::move(items));
  }

  const Factory& factory_;
  const Marks* marks_;
};

// Adds the variables that the template names.
Result<void> add_variables(const Json& json, const Marks* marks, const Interpreter& in,
                           Variables& out) {
  if (json.is_null()) return {};
  if (!json.is_object()) {
    return fail(ErrorCode::kInvalidArgument,
                "The variables of a chat template are not a JSON object; pass one.");
  }
  Converter converter(in.factory(), marks);
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

std::vector<std::string> unread_members(const Json& data, const Interpreter& in) {
  std::vector<std::string> unread;
  if (!data.is_object()) return unread;
  for (auto at = data.begin(); at != data.end(); ++at) {
    const Name* name = in.names().find(at.key());
    if (name == nullptr || !in.has_read(*name)) unread.push_back(at.key());
  }
  return unread;
}

}  // namespace

bool is_plain_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain);
}

std::vector<Piece> pieces_of(const Text& text) {
  std::vector<Piece> pieces;
  size_t from = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string_view part = std::string_view(text.bytes()).substr(from, run.end - from);
    from = run.end;
    if (!pieces.empty() && pieces.back().is_template == !run.source.user) {
      pieces.back().text += part;
    } else {
      pieces.push_back({std::string(part), !run.source.user});
    }
  }
  return pieces;
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source,
                                                                Limits limits) {
  limits.depth = std::clamp(limits.depth, 1, 1000);
  auto impl = std::make_shared<Impl>();
  impl->source = source;
  CULET_TRY(impl->parsed, parse_template(source, limits.depth));
  impl->limits = limits;
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

const std::string& ChatTemplate::source() const { return impl_->source; }

Result<Rendering> ChatTemplate::render(const Json& data, const Json& constants, const Marks& marks,
                                       const Limits& limits) const {
  const size_t most = SIZE_MAX / kMemoryPerOutput;
  const size_t memory = std::max(kLeastMemory, std::min(limits.output, most) * kMemoryPerOutput);
  Budget budget(limits.fuel, memory);
  Interpreter interpreter(*impl_->parsed, budget, limits.depth, limits.output);
  Variables variables;
  CULET_TRY_VOID(add_variables(data, &marks, interpreter, variables));
  CULET_TRY_VOID(add_variables(constants, nullptr, interpreter, variables));
  interpreter.set_variables(std::move(variables));
  CULET_TRY(Text text, interpreter.run());
  return Rendering{std::move(text), unread_members(data, interpreter)};
}

Result<Rendering> ChatTemplate::render(const Json& data, const Json& constants,
                                       const Marks& marks) const {
  return render(data, constants, marks, impl_->limits);
}

Result<std::vector<Piece>> ChatTemplate::render(const Json& data, const Json& constants) const {
  CULET_TRY(const Rendering rendering, render(data, constants, {}, impl_->limits));
  return pieces_of(rendering.text);
}

const ChatTraits& ChatTemplate::traits() const {
  std::call_once(impl_->probed, [this] { impl_->traits = probe(*this); });
  return impl_->traits;
}

}  // namespace culet::chat
