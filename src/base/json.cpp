// Takes text, gives a document. Built from parser events instead of the library's own builder,
// because that one searches an ordered object before each insertion, which is quadratic in the
// number of members. Here members are appended and duplicates are found by sorting at the end of
// the object. Depth is checked by a scan before parsing, so the message can say where.
#include "base/json.h"

#include "base/numbers.h"
#include "base/utf8.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace culet::base {
namespace {

using Json = nlohmann::ordered_json;

// Position of the bracket that opens level max_depth + 1, or nothing. Strings are stepped over.
std::optional<size_t> too_deep_at(std::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

// The first key that an object has twice.
std::optional<std::string_view> duplicate_key(const Json::object_t& object) {
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto& member : object) keys.push_back(member.first);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return std::nullopt;
  return *twice;
}

// The library's "[id] parse error at line 1, column 2: syntax error while parsing value - REASON;
// last read: '...'" without what we say ourselves.
std::string_view reason_of(std::string_view what) {
  for (const std::string_view before : {"] ", " - "}) {
    if (const size_t at = what.find(before); at != what.npos)
      what.remove_prefix(at + before.size());
  }
  return what.substr(0, what.find("; last read: "));
}

std::string shortened(std::string_view token) {
  std::string out;
  for (size_t pos = 0; pos < token.size();) {
    const Utf8Step step = utf8_step(token, pos);
    if (pos + size_t(step.length) > 40) return out + "...";
    out += token.substr(pos, size_t(step.length));
    pos += size_t(step.length);
  }
  return out;
}

class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }  // not a JSON event

  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool key(string_t& v) override {
    open_.back().key = std::move(v);
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override {
    if (auto twice = duplicate_key(open_.back().value.get_ref<const Json::object_t&>())) {
      error_ = fmt::format("the key \"{}\" occurs twice in one JSON object", shortened(*twice));
      return false;
    }
    return close();
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& why) override {
    error_ = fmt::format("JSON error at byte {}: {}", position, reason_of(why.what()));
    if (utf8_valid(token)) error_ += fmt::format(" near '{}'", shortened(token));
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  struct Open {
    Json value;
    std::string key;  // of the member that comes next
  };

  bool open(Json empty) {
    open_.push_back({std::move(empty), {}});
    return true;
  }
  bool close() {
    Json done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& top = open_.back(); top.value.is_array()) {
      top.value.get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      static_cast<Json::object_t::Container&>(top.value.get_ref<Json::object_t&>())
          .emplace_back(std::move(top.key), std::move(value));
    }
    return true;
  }

  Json root_;
  std::vector<Open> open_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, int max_depth, uint64_t max_bytes) {
  if (text.size() > max_bytes) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the JSON text has {} bytes, more than the {} that are allowed here",
                            text.size(), max_bytes));
  }
  if (auto at = too_deep_at(text, max_depth)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("JSON error at byte {}: nested deeper than {} levels", *at + 1, max_depth));
  }
  // The parser takes one for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("JSON error at byte {}: a NUL byte", nul + 1));
  }
  const CLocale c_locale;  // the library reads numbers with strtod
  try {
    Builder builder;
    if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
    return fail(ErrorCode::kInvalidArgument, builder.error());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, "out of memory while parsing JSON");
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("JSON error: {}", e.what()));
  }
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace culet::base
