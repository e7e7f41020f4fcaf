// Takes the text of a family file, gives its rows. A line is a statement; its first word says
// which.
#include "convert/family.h"

#include <fmt/format.h>

#include <algorithm>

namespace culet::convert {
namespace {

constexpr int kMostIncludes = 8;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The text before a separator, which is cut off together with it; the whole where there is none.
std::string_view cut(std::string_view* text, std::string_view separator) {
  const size_t at = text->find(separator);
  const std::string_view before = trimmed(text->substr(0, at));
  *text = at == std::string_view::npos ? std::string_view{} : text->substr(at + separator.size());
  *text = trimmed(*text);
  return before;
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) words.emplace_back(cut(&list, ","));
  return words;
}

// Whether an expression speaks of the layer it is for.
bool names_layer(std::string_view text) {
  const auto part_of_name = [&](size_t at) {
    const char c = at < text.size() ? text[at] : ' ';
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t at = text.find('i'); at != std::string_view::npos; at = text.find('i', at + 1)) {
    if (!part_of_name(at + 1) && (at == 0 || !part_of_name(at - 1))) return true;
  }
  return false;
}

struct KindName {
  std::string_view name;
  MetaKind kind;
};
constexpr KindName kKinds[] = {{"u32", MetaKind::kUint32},
                               {"f32", MetaKind::kFloat32},
                               {"bool", MetaKind::kBool},
                               {"string", MetaKind::kString}};

struct TransformName {
  std::string_view name;
  Transform::Kind kind;
  size_t operands;
};
constexpr TransformName kTransforms[] = {{"rotate", Transform::Kind::kRotate, 1},
                                         {"plus_one", Transform::Kind::kPlusOne, 0},
                                         {"part", Transform::Kind::kPart, 2},
                                         {"skip", Transform::Kind::kSkip, 1},
                                         {"squeeze", Transform::Kind::kSqueeze, 0}};

class FamilyParser {
 public:
  // files: how many were begun so far.
  FamilyParser(std::string_view name, std::span<const FamilyText> library, Family* out, int* files)
      : name_(name), library_(library), out_(*out), files_(*files), file_(++*files) {}

  Result<void> parse(std::string_view text, int depth);

 private:
  tl::unexpected<Error> wrong(const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", location(), what));
  }
  LineName location() const { return fmt::format("{}.family:{}", name_, line_); }

  Result<void> statement(std::string_view line, int depth);
  Result<void> include(std::string_view rest, int depth);
  Result<void> rename(std::string_view rest);
  Result<void> let(std::string_view rest);
  Result<void> require(std::string_view rest);
  Result<void> meta(std::string_view rest);
  Result<void> tensor(std::string_view rest);
  Result<void> values(std::string_view rest);
  Result<void> drop(std::string_view rest);
  Result<void> without(std::string_view rest);
  Result<void> member(std::string_view rest, bool is_note);
  Result<void> set_default(std::string_view rest);
  Result<void> alias(std::string_view rest);
  Result<void> shape(std::string_view rest);

  Result<Expression> expression(std::string_view text) const;
  // "... when EXPRESSION": cut off and parsed.
  Result<std::optional<Expression>> condition(std::string_view* text) const;
  Result<Transform> transform(std::string_view text) const;

  std::string_view name_, text_;
  std::vector<expr::SourceFile> source_;  // the text again, as expressions want it
  std::span<const FamilyText> library_;
  Family& out_;
  int& files_;
  const int file_;
  int line_ = 0;
};

Result<void> FamilyParser::parse(std::string_view text, int depth) {
  text_ = text;
  source_ = {{fmt::format("{}.family", name_), std::string(text), 0}};
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_;
    line = trimmed(line.substr(0, line.find('#')));
    if (!line.empty()) CULET_TRY_VOID(statement(line, depth));
  }
  return {};
}

Result<void> FamilyParser::statement(std::string_view line, int depth) {
  const std::string_view word = cut(&line, " ");
  if (line.empty()) return wrong(fmt::format("'{}' needs something after it", word));
  if (word == "family" || word == "models") {
    if (depth > 0) return {};  // what an included file is itself
    if (word == "family") out_.name = line;
    if (word == "models") out_.models = words_of(line);
    return {};
  }
  if (word == "tokenizer") {
    out_.tokenizer = line;
    return {};
  }
  if (word == "pre") {
    out_.pre_tokenizer = line;
    return {};
  }
  if (word == "visible") {
    while (!line.empty()) out_.visible.emplace_back(cut(&line, " "));
    return {};
  }
  if (word == "include") return include(line, depth);
  if (word == "rename") return rename(line);
  if (word == "let") return let(line);
  if (word == "require") return require(line);
  if (word == "meta") return meta(line);
  if (word == "tensor") return tensor(line);
  if (word == "values") return values(line);
  if (word == "drop") return drop(line);
  if (word == "without") return without(line);
  if (word == "harmless" || word == "note") return member(line, word == "note");
  if (word == "default") return set_default(line);
  if (word == "alias") return alias(line);
  if (word == "shape") return shape(line);
  return wrong(fmt::format("there is no statement '{}'", word));
}

Result<void> FamilyParser::include(std::string_view rest, int depth) {
  if (depth >= kMostIncludes) return wrong("files include each other too deeply");
  for (const FamilyText& other : library_) {
    if (other.name != rest) continue;
    return FamilyParser(other.name, library_, &out_, &files_).parse(other.text, depth + 1);
  }
  return wrong(fmt::format("there is no family file '{}'", rest));
}

Result<Expression> FamilyParser::expression(std::string_view text) const {
  if (text.empty()) return wrong("an expression is missing");
  return Expression::parse(source_, 0, static_cast<size_t>(text.data() - text_.data()), text);
}

Result<std::optional<Expression>> FamilyParser::condition(std::string_view* text) const {
  constexpr std::string_view kWhen = " when ";
  const size_t at = text->rfind(kWhen);
  if (at == std::string_view::npos) return std::nullopt;
  CULET_TRY(Expression when, expression(trimmed(text->substr(at + kWhen.size()))));
  *text = trimmed(text->substr(0, at));
  return std::optional(std::move(when));
}

// rename FROM = TO
Result<void> FamilyParser::rename(std::string_view rest) {
  if (rest.find('=') == std::string_view::npos) return wrong("'rename' needs FROM = TO");
  const std::string_view from = cut(&rest, "=");
  out_.renames.push_back({std::string(from), std::string(rest)});
  return {};
}

// let NAME = EXPRESSION
Result<void> FamilyParser::let(std::string_view rest) {
  const std::string_view name = cut(&rest, "=");
  if (name.empty() || rest.empty()) return wrong("'let' needs NAME = EXPRESSION");
  CULET_TRY(Expression value, expression(rest));
  out_.definitions.insert_or_assign(std::string(name), std::move(value));
  return {};
}

// require EXPRESSION : MESSAGE
Result<void> FamilyParser::require(std::string_view rest) {
  const std::string_view condition = cut(&rest, " : ");
  if (rest.empty()) return wrong("'require' needs EXPRESSION : MESSAGE");
  CULET_TRY(Expression parsed, expression(condition));
  out_.requirements.push_back(
      {std::move(parsed), names_layer(condition), std::string(rest), location()});
  return {};
}

// meta KIND[[]][?] KEY = EXPRESSION [when EXPRESSION]
Result<void> FamilyParser::meta(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  std::string_view kind = cut(&rest, " ");
  const std::string_view key = cut(&rest, "=");
  const bool optional = kind.ends_with('?');
  if (optional) kind.remove_suffix(1);
  const bool each = kind.ends_with("[]");
  if (each) kind.remove_suffix(2);
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [kind](const KindName& k) { return k.name == kind; });
  if (found == std::end(kKinds)) return wrong(fmt::format("'{}' is not a kind of value", kind));
  if (key.empty() || rest.empty()) return wrong("'meta' needs KIND KEY = EXPRESSION");
  CULET_TRY(Expression value, expression(rest));
  // A key may have rows for several conditions; a later file replaces them all.
  std::erase_if(out_.metadata,
                [&](const MetaRow& row) { return row.key == key && row.file != file_; });
  out_.metadata.push_back({std::string(key), found->kind, each, optional, std::move(value),
                           std::move(when), location(), file_});
  return {};
}

// NAME or NAME(EXPRESSION, ...)
Result<Transform> FamilyParser::transform(std::string_view text) const {
  std::string_view rest = text;
  const std::string_view name = cut(&rest, "(");
  for (const TransformName& known : kTransforms) {
    if (known.name != name) continue;
    Transform made{known.kind, {}};
    if (rest.ends_with(')')) rest.remove_suffix(1);
    while (!rest.empty()) {
      CULET_TRY(made.operands.emplace_back(), expression(cut(&rest, ",")));
    }
    if (made.operands.size() == known.operands) return made;
    return wrong(fmt::format("'{}' takes {} operands", name, known.operands));
  }
  return wrong(fmt::format("there is no change of tensors '{}'", name));
}

// tensor FROM -> TO[?] [: TRANSFORM ...] [when EXPRESSION]
Result<void> FamilyParser::tensor(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  const std::string_view from = cut(&rest, "->");
  std::string_view to = cut(&rest, ":");
  if (from.empty() || to.empty()) return wrong("'tensor' needs FROM -> TO");
  const bool optional = to.ends_with('?');
  if (optional) to.remove_suffix(1);
  TensorRow row{std::string(from), std::string(to), optional, {},
                std::move(when),   location(),      file_};
  while (!rest.empty()) {
    // Up to the next comma that is not inside parentheses.
    const size_t open = rest.find('('), comma = rest.find(',');
    const size_t from_here = open < comma ? rest.find(')', open) : 0;
    const size_t end = std::min(rest.find(',', std::min(from_here, rest.size())), rest.size());
    CULET_TRY(row.transforms.emplace_back(), transform(trimmed(rest.substr(0, end))));
    rest = trimmed(rest.substr(std::min(end + 1, rest.size())));
  }
  std::erase_if(out_.tensors,
                [&](const TensorRow& other) { return other.to == row.to && other.file != file_; });
  out_.tensors.push_back(std::move(row));
  return {};
}

// values TO [COUNT] = EXPRESSION [when EXPRESSION]
Result<void> FamilyParser::values(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  const std::string_view to = cut(&rest, "[");
  const std::string_view count = cut(&rest, "] =");
  if (to.empty() || count.empty() || rest.empty()) {
    return wrong("'values' needs NAME [COUNT] = EXPRESSION");
  }
  CULET_TRY(Expression parsed_count, expression(count));
  CULET_TRY(Expression value, expression(rest));
  out_.values.push_back(
      {std::string(to), std::move(parsed_count), std::move(value), std::move(when), location()});
  return {};
}

// drop PATTERN [when EXPRESSION]
Result<void> FamilyParser::drop(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  out_.drops.push_back({std::string(rest), std::move(when), location()});
  return {};
}

// without TO, ...: an included file's tensors that this family does not have
Result<void> FamilyParser::without(std::string_view rest) {
  for (const std::string& name : words_of(rest)) {
    const auto has_name = [&name](const TensorRow& row) { return row.to == name; };
    if (std::erase_if(out_.tensors, has_name) == 0) {
      return wrong(fmt::format("there is no tensor '{}' so far", name));
    }
  }
  return {};
}

// harmless NAME, ... [when EXPRESSION] : REASON
// note NAME, ... [when EXPRESSION] : SENTENCE
Result<void> FamilyParser::member(std::string_view rest, bool is_note) {
  std::string_view names = cut(&rest, " : ");
  CULET_TRY(const std::optional<Expression> when, condition(&names));
  if (names.empty() || rest.empty()) {
    return wrong(fmt::format("'{}' needs NAME, ... : REASON", is_note ? "note" : "harmless"));
  }
  // A later file's rows decide before those that it includes.
  std::vector<MemberRow> rows;
  for (const std::string& name : words_of(names)) {
    rows.push_back({name, is_note, when, std::string(rest), location()});
  }
  out_.members.insert(out_.members.begin(), rows.begin(), rows.end());
  return {};
}

// default NAME = EXPRESSION [when EXPRESSION]
Result<void> FamilyParser::set_default(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  const std::string_view name = cut(&rest, "=");
  if (name.empty() || rest.empty()) return wrong("'default' needs NAME = EXPRESSION");
  CULET_TRY(Expression value, expression(rest));
  std::erase_if(out_.defaults,
                [&](const DefaultRow& row) { return row.name == name && row.file != file_; });
  out_.defaults.push_back({std::string(name), std::move(value), std::move(when), file_});
  return {};
}

// alias NAME = NAME
Result<void> FamilyParser::alias(std::string_view rest) {
  const std::string_view name = cut(&rest, "=");
  if (name.empty() || rest.empty()) return wrong("'alias' needs NAME = NAME");
  out_.aliases.emplace_back(name, rest);
  return {};
}

// shape TENSOR = SIZE x SIZE ... [when EXPRESSION]
Result<void> FamilyParser::shape(std::string_view rest) {
  CULET_TRY(std::optional<Expression> when, condition(&rest));
  const std::string_view name = cut(&rest, "=");
  if (name.empty() || rest.empty()) return wrong("'shape' needs TENSOR = SIZE x SIZE");
  ShapeRow row{std::string(name), {}, std::move(when), location(), file_};
  while (!rest.empty()) {
    CULET_TRY(row.sizes.emplace_back(), expression(cut(&rest, " x ")));
  }
  std::erase_if(out_.shapes, [&](const ShapeRow& other) {
    return other.tensor == row.tensor && other.file != file_;
  });
  out_.shapes.push_back(std::move(row));
  return {};
}

}  // namespace

Result<Family> parse_family(std::string_view name, std::string_view text,
                            std::span<const FamilyText> library) {
  Family family;
  int files = 0;
  CULET_TRY_VOID(FamilyParser(name, library, &family, &files).parse(text, 0));
  return family;
}

Result<Family> find_family(std::string_view model, std::span<const FamilyText> library) {
  for (const FamilyText& entry : library) {
    if (entry.text.find(model) == std::string_view::npos) continue;
    CULET_TRY(Family family, parse_family(entry.name, entry.text, library));
    if (std::find(family.models.begin(), family.models.end(), model) != family.models.end()) {
      return family;
    }
  }
  std::string known;
  for (const FamilyText& entry : library) {
    CULET_TRY(const Family family, parse_family(entry.name, entry.text, library));
    for (const std::string& other : family.models) {
      known += (known.empty() ? "" : ", ") + other;
    }
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("models of the class '{}' are not known; there are {}; "
                          "docs/formats/family.md says how to add one",
                          model, known));
}

}  // namespace culet::convert
