// Takes a tokenizer's files, gives the keys of a GGUF file. tokenizer.json says what kind it is by
// its parts: byte-level merges, merges over characters with byte tokens (what SentencePiece's BPE
// becomes), or WordPiece. tokenizer.model, where it is there, is SentencePiece itself.
//
// A GGUF file holds less than a tokenizer.json can say. What it cannot hold (other models, steps of
// a pre-tokenizer that have no name) is an error here, not another text later.
#include "convert/tokenizer.h"

#include "base/json.h"
#include "base/utf8.h"
#include "convert/json_parts.h"
#include "convert/sentencepiece.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace culet::convert {
namespace {

using Json = nlohmann::ordered_json;

enum Kind : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

constexpr float kOtherScore = -1000;  // of tokens that no merge makes
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

struct PreTokenizer {
  std::string_view names;  // separated by spaces
  bool whole;
  std::vector<std::string_view> steps;
};

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> kRows{
#define CULET_PRE(names, whole, ...) {names, whole, {__VA_ARGS__}},
#include "convert/tokenizers.def"
#undef CULET_PRE
  };
  return kRows;
}

template <class... Args>
tl::unexpected<Error> corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
tl::unexpected<Error> unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...));
}

// ---------------------------------------------------------------- JSON

std::optional<bool> bool_of(const Json* value) {
  if (value == nullptr || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

// The parts of a "Sequence", or the one part that is there instead.
std::vector<const Json*> parts_of(const Json* step, std::string_view list) {
  if (step == nullptr) return {};
  const Json* parts = member(step, list);
  if (parts == nullptr || !parts->is_array()) return {step};
  std::vector<const Json*> out;
  for (const Json& part : *parts) out.push_back(&part);
  return out;
}

std::string type_of(const Json* step) { return text_of(member(step, "type")); }

const Json* find_type(const std::vector<const Json*>& steps, std::string_view type) {
  for (const Json* step : steps) {
    if (type_of(step) == type) return step;
  }
  return nullptr;
}

// ---------------------------------------------------------------- tokens

struct Vocabulary {
  std::string model, pre;
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  std::vector<float> scores;  // empty: the kind has none
  std::vector<std::string> merges;
  std::optional<bool> space_prefix;

  // Makes room for an id; what was not there is unused.
  void reach(size_t id) {
    while (tokens.size() <= id) {
      tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
      kinds.push_back(kUnused);
      if (!scores.empty()) scores.push_back(kOtherScore);
    }
  }
};

class Builder {
 public:
  Builder(const TokenizerFiles& files, const TokenizerOptions& options)
      : files_(files), options_(options) {}

  Result<Vocabulary> build();
  const std::vector<std::string>& left_out() const { return left_out_; }  // tokens without a row

 private:
  Result<void> read_model();
  Result<void> read_bpe(const Json& model);
  Result<void> read_wordpiece(const Json& model);
  Result<void> read_sentencepiece();
  Result<void> read_vocab(const Json& model);
  Result<void> read_merges(const Json& model, bool byte_level);
  Result<void> read_pre_tokenizer(const Json& model);
  Result<void> read_added();
  Result<void> add_token(const Json& token, const Json* id);
  void score_by_merges();
  void mark_bytes();
  Result<size_t> id_of(const Json* id, const std::string& token) const;

  const TokenizerFiles& files_;
  const TokenizerOptions& options_;
  Vocabulary out_;
  std::map<size_t, std::string> added_;
  std::vector<std::string> left_out_;
};

Result<size_t> Builder::id_of(const Json* id, const std::string& token) const {
  if (id == nullptr || !id->is_number_unsigned() || id->get<uint64_t>() >= options_.rows) {
    return corrupt("the tokenizer gives '{}' the id {}, but the embedding has {} rows", token,
                   id ? base::dump_json(*id) : "nothing", options_.rows);
  }
  return size_t(id->get<uint64_t>());
}

// "vocab": an object of tokens and ids.
Result<void> Builder::read_vocab(const Json& model) {
  const Json* vocab = member(&model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return corrupt("tokenizer.json has no vocab");
  for (const auto& [token, id] : vocab->items()) {
    CULET_TRY(const size_t at, id_of(&id, token));
    out_.reach(at);
    if (out_.kinds[at] != kUnused) {
      return corrupt("tokenizer.json gives '{}' and '{}' the same id {}", out_.tokens[at], token,
                     at);
    }
    out_.tokens[at] = token;
    out_.kinds[at] = kNormal;
  }
  return {};
}

// "merges": "left right", or pairs. A space inside a part is written as byte-level vocabularies
// write it.
Result<void> Builder::read_merges(const Json& model, bool byte_level) {
  const Json* merges = member(&model, "merges");
  if (merges == nullptr || !merges->is_array()) return corrupt("tokenizer.json has no merges");
  for (const Json& merge : *merges) {
    if (merge.is_string()) {
      out_.merges.push_back(merge.get<std::string>());
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
      return corrupt("a merge of tokenizer.json is neither a text nor a pair of texts");
    }
    std::string parts[2];
    for (size_t k = 0; k < 2; ++k) {
      for (const char c : merge[k].get_ref<const std::string&>()) {
        if (c == ' ' && byte_level) {
          parts[k] += "\xc4\xa0";
        } else if (c == ' ') {
          return unsupported("a merge of tokenizer.json has a space in it");
        } else {
          parts[k] += c;
        }
      }
    }
    out_.merges.push_back(parts[0] + " " + parts[1]);
  }
  return {};
}

// SentencePiece's score of a token is the rank of its merge, and a merge's rank is its place in the
// list.
void Builder::score_by_merges() {
  std::map<std::string, float, std::less<>> rank;
  for (size_t i = 0; i < out_.merges.size(); ++i) {
    std::string token = out_.merges[i];
    std::erase(token, ' ');
    rank.emplace(std::move(token), -float(i));
  }
  out_.scores.assign(out_.tokens.size(), 0);
  for (size_t i = 0; i < out_.tokens.size(); ++i) {
    if (const auto at = rank.find(out_.tokens[i]); at != rank.end()) out_.scores[i] = at->second;
  }
  out_.merges.clear();
}

// <0x00> to <0xFF>
void Builder::mark_bytes() {
  for (size_t i = 0; i < out_.tokens.size(); ++i) {
    const std::string& token = out_.tokens[i];
    if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
      out_.kinds[i] = kByte;
    }
  }
}

// What a text goes through before it is cut: steps that a file can say, or that are its kind's own.
// NFC is left out on purpose (docs/decisions/0007).
Result<void> check_normalizers(const Json* normalizer, std::string_view type) {
  constexpr struct {
    std::string_view type, steps;
  } kKnown[] = {{"BPE", " NFC Prepend Replace "}, {"WordPiece", " BertNormalizer "}};
  for (const Json* step : parts_of(normalizer, "normalizers")) {
    for (const auto& row : kKnown) {
      const std::string name = type_of(step);
      if (row.type != type || row.steps.find(" " + name + " ") != std::string_view::npos) continue;
      return unsupported(
          "the tokenizer changes texts by '{}' first, which a GGUF file cannot express", name);
    }
  }
  return {};
}

Result<void> Builder::read_bpe(const Json& model) {
  const auto steps = parts_of(member(files_.tokenizer, "pre_tokenizer"), "pretokenizers");
  const auto decoders = parts_of(member(files_.tokenizer, "decoder"), "decoders");
  const bool byte_level = find_type(steps, "ByteLevel") || find_type(decoders, "ByteLevel");
  if (!byte_level && !bool_of(member(&model, "byte_fallback")).value_or(false)) {
    return unsupported(
        "the tokenizer merges characters and has no tokens for bytes, which a GGUF file cannot "
        "express");
  }
  CULET_TRY_VOID(read_vocab(model));
  CULET_TRY_VOID(read_merges(model, byte_level));
  if (byte_level) {
    out_.model = "gpt2";
    return read_pre_tokenizer(model);
  }
  mark_bytes();
  if (!options_.kind.empty()) {
    out_.model = options_.kind;
    out_.scores.assign(out_.tokens.size(), kOtherScore);
    return {};
  }
  out_.model = "llama";
  out_.pre = "default";
  score_by_merges();
  const Json* meta_space = find_type(steps, "Metaspace");
  const auto normalizers = parts_of(member(files_.tokenizer, "normalizer"), "normalizers");
  out_.space_prefix =
      find_type(normalizers, "Prepend") != nullptr ||
      (meta_space != nullptr && text_of(member(meta_space, "prepend_scheme")) != "never");
  if (const std::string unknown = text_of(member(&model, "unk_token")); !unknown.empty()) {
    const auto at = std::find(out_.tokens.begin(), out_.tokens.end(), unknown);
    if (at != out_.tokens.end()) out_.kinds[size_t(at - out_.tokens.begin())] = kUnknown;
  }
  return {};
}

// The names of the steps, or why there are none.
Result<std::vector<std::string>> steps_of(const Json* pre_tokenizer) {
  std::vector<std::string> out;
  for (const Json* step : parts_of(pre_tokenizer, "pretokenizers")) {
    const std::string type = type_of(step);
    const Json* pattern = member(step, "pattern");
    if (type == "ByteLevel") {
      if (bool_of(member(step, "add_prefix_space")).value_or(false)) {
        return unsupported(
            "the pre-tokenizer puts a space before every text, which a GGUF file cannot express");
      }
      if (bool_of(member(step, "use_regex")).value_or(true)) out.emplace_back("words");
    } else if (type == "Digits" && bool_of(member(step, "individual_digits")).value_or(false)) {
      out.emplace_back("digits");
    } else if (type == "Split" && text_of(member(step, "behavior")) == "Isolated" &&
               !bool_of(member(step, "invert")).value_or(false) && member(pattern, "Regex")) {
      out.push_back(text_of(member(pattern, "Regex")));
    } else {
      return unsupported("the pre-tokenizer has a step '{}', which a GGUF file cannot express",
                         type);
    }
  }
  return out;
}

Result<void> Builder::read_pre_tokenizer(const Json& model) {
  CULET_TRY(const std::vector<std::string> steps,
            steps_of(member(files_.tokenizer, "pre_tokenizer")));
  const bool whole = bool_of(member(&model, "ignore_merges")).value_or(false);
  for (const PreTokenizer& row : pre_tokenizers()) {
    if (row.whole != whole ||
        !std::equal(steps.begin(), steps.end(), row.steps.begin(), row.steps.end())) {
      continue;
    }
    const std::string names = fmt::format(" {} ", row.names);
    const bool wanted =
        !options_.pre.empty() && names.find(fmt::format(" {} ", options_.pre)) != std::string::npos;
    out_.pre = wanted ? options_.pre : std::string(row.names.substr(0, row.names.find(' ')));
    return {};
  }
  return unsupported("no pre-tokenizer of GGUF files has these steps: {}{}",
                     fmt::join(steps, " then "), whole ? ", whole words first" : "");
}

// Words begin with a mark, and what goes on with one does not: the other way round than "##".
Result<void> Builder::read_wordpiece(const Json& model) {
  if (text_of(member(&model, "continuing_subword_prefix")) != "##") {
    return unsupported(
        "the tokenizer does not mark continued pieces with ##, which a GGUF file cannot express");
  }
  CULET_TRY_VOID(read_vocab(model));
  out_.model = "bert";
  out_.pre = "default";
  return {};
}

Result<void> Builder::read_sentencepiece() {
  const std::string& file = files_.sentencepiece;
  CULET_TRY(const SentencePieces pieces,
            parse_sentencepiece(std::as_bytes(std::span(file)), "tokenizer.model"));
  if (!pieces.is_bpe) {
    return unsupported("tokenizer.model is a unigram model, which is not read yet");
  }
  if (pieces.pieces.size() > options_.rows) {
    return corrupt("tokenizer.model has {} tokens, but the embedding has {} rows",
                   pieces.pieces.size(), options_.rows);
  }
  out_.model = "llama";
  out_.pre = "default";
  for (const SentencePieces::Piece& piece : pieces.pieces) {
    out_.tokens.push_back(piece.text);
    out_.kinds.push_back(piece.kind);
    out_.scores.push_back(piece.score);
  }
  out_.space_prefix = pieces.add_space_prefix;
  return {};
}

Result<void> Builder::read_model() {
  const bool other_kind = !options_.kind.empty();
  if (!files_.sentencepiece.empty() && !other_kind) return read_sentencepiece();
  if (files_.tokenizer == nullptr) {
    return fail(ErrorCode::kNotFound, "the folder has neither tokenizer.json nor tokenizer.model");
  }
  const Json* model = member(files_.tokenizer, "model");
  if (model == nullptr) return corrupt("tokenizer.json has no model");
  const std::string type = type_of(model);
  CULET_TRY_VOID(check_normalizers(member(files_.tokenizer, "normalizer"), type));
  if (type == "BPE") return read_bpe(*model);
  if (type == "WordPiece") return read_wordpiece(*model);
  return unsupported("a tokenizer of the type '{}' is not read; BPE and WordPiece are", type);
}

// ---------------------------------------------------------------- added tokens

// Texts that are control tokens, whatever the file says of them.
bool looks_special(std::string_view token) {
  return token == "<pad>" || token == "<mask>" ||
         (token.starts_with("<|") && token.ends_with("|>")) ||
         (token.starts_with("<unused") && token.ends_with(">"));
}

Result<void> Builder::add_token(const Json& token, const Json* id) {
  std::string content = text_of(member(&token, "content"));
  if (content.empty()) {
    return corrupt("the added token {} has no text", id ? base::dump_json(*id) : "without an id");
  }
  if (id != nullptr && id->is_number_unsigned() && id->get<uint64_t>() >= options_.rows) {
    left_out_.push_back(std::move(content));
    return {};
  }
  CULET_TRY(const size_t at, id_of(id, content));
  if (const auto [known, fresh] = added_.emplace(at, content); !fresh && known->second != content) {
    return corrupt("the added tokens '{}' and '{}' have the same id {}", known->second, content,
                   at);
  }
  out_.reach(at);
  const bool special = bool_of(member(&token, "special")).value_or(false);
  const bool visible = std::find(options_.visible.begin(), options_.visible.end(), content) !=
                       options_.visible.end();
  if (out_.kinds[at] != kUnknown) {
    out_.kinds[at] = (special || looks_special(content)) && !visible ? kControl : kUserDefined;
  }
  if (out_.kinds[at] == kUserDefined) {
    for (size_t mark = content.find(kSpaceMark); mark != std::string::npos;
         mark = content.find(kSpaceMark)) {
      content.replace(mark, kSpaceMark.size(), " ");
    }
  }
  if (!out_.scores.empty()) out_.scores[at] = kOtherScore;
  out_.tokens[at] = std::move(content);
  return {};
}

Result<void> Builder::read_added() {
  if (const Json* added = member(files_.tokenizer, "added_tokens"); added && added->is_array()) {
    for (const Json& token : *added) CULET_TRY_VOID(add_token(token, member(&token, "id")));
    return {};
  }
  const Json* added = member(files_.settings, "added_tokens_decoder");
  if (added == nullptr || !added->is_object()) return {};
  for (const auto& [id, token] : added->items()) {
    const bool number =
        !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    const Json value = number ? Json(uint64_t(std::stoul(id))) : Json();
    CULET_TRY_VOID(add_token(token, &value));
  }
  return {};
}

Result<Vocabulary> Builder::build() {
  CULET_TRY_VOID(read_model());
  CULET_TRY_VOID(read_added());
  if (out_.model == "bert") {
    for (size_t i = 0; i < out_.tokens.size(); ++i) {
      std::string& token = out_.tokens[i];
      if (out_.kinds[i] != kNormal) continue;
      if (token.starts_with("##")) {
        token.erase(0, 2);
      } else {
        token.insert(0, kSpaceMark);
      }
    }
  }
  if (out_.tokens.empty()) return corrupt("the tokenizer has no tokens");
  out_.reach(size_t(options_.rows) - 1);
  return std::move(out_);
}

// ---------------------------------------------------------------- what stands around a text

struct Special {
  std::string_view name;  // in tokenizer_config.json: NAME_token, in config.json: NAME_token_id
  std::string_view key;
};
constexpr Special kSpecials[] = {{"bos", "bos_token_id"},     {"eos", "eos_token_id"},
                                 {"unk", "unknown_token_id"}, {"sep", "seperator_token_id"},
                                 {"pad", "padding_token_id"}, {"cls", "cls_token_id"},
                                 {"mask", "mask_token_id"}};

class Ends {
 public:
  Ends(const TokenizerFiles& files, const Vocabulary& vocabulary, format::GgufMetadata* metadata)
      : files_(files), metadata_(*metadata) {
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      ids_.emplace(vocabulary.tokens[i], int64_t(i));
    }
    count_ = int64_t(vocabulary.tokens.size());
  }

  Result<void> write() {
    for (const char* name : {"bos", "eos"}) CULET_TRY_VOID(check(name));
    for (const Special& special : kSpecials) write_id(special);
    write_other_ends();
    for (const char* name : {"bos", "eos"}) write_flag(name);
    return {};
  }

 private:
  std::optional<int64_t> id(const Json* token) const {
    const Json* content = member(token, "content");
    const std::string text = text_of(content ? content : token);
    const auto at = ids_.find(text);
    return text.empty() || at == ids_.end() ? std::nullopt : std::optional(at->second);
  }
  // A number, or the first of a list.
  std::vector<int64_t> numbers(const Json* value) const {
    std::vector<int64_t> out;
    const auto add = [&](const Json& number) {
      if (number.is_number_unsigned() && number.get<uint64_t>() < uint64_t(count_)) {
        out.push_back(number.get<int64_t>());
      }
    };
    if (value != nullptr && value->is_array()) {
      for (const Json& number : *value) add(number);
    } else if (value != nullptr) {
      add(*value);
    }
    return out;
  }
  void set(std::string_view key, int64_t id) {
    metadata_.set_uint32(fmt::format("tokenizer.ggml.{}", key), uint32_t(id));
  }

  Result<void> check(const std::string& name) const;
  void write_id(const Special& special);
  void write_other_ends();
  void write_flag(const std::string& name);
  std::optional<bool> flag_of_template(const std::string& name) const;

  const TokenizerFiles& files_;
  format::GgufMetadata& metadata_;
  std::map<std::string, int64_t, std::less<>> ids_;
  int64_t count_ = 0;
  std::map<std::string_view, int64_t> found_;
};

// The begin and the end that the folder names must be tokens.
Result<void> Ends::check(const std::string& name) const {
  const Json* token = member(files_.settings, name + "_token");
  const Json* content = member(token, "content");
  const std::string text = text_of(content ? content : token);
  if (!text.empty() && !id(token)) {
    return corrupt("tokenizer_config.json names '{}' as {}_token, which is no token", text, name);
  }
  for (const Json* file : {files_.config, files_.generation}) {
    const Json* given = member(file, name + "_token_id");
    const size_t all = given == nullptr || given->is_null() ? 0
                       : given->is_array()                  ? given->size()
                                                            : 1;
    if (numbers(given).size() < all) {
      return corrupt("{}_token_id is {}, but the tokenizer has {} tokens", name,
                     base::dump_json(*given), count_);
    }
  }
  return {};
}

void Ends::write_id(const Special& special) {
  std::optional<int64_t> found = id(member(files_.settings, fmt::format("{}_token", special.name)));
  const std::string key = fmt::format("{}_token_id", special.name);
  for (const Json* file : {files_.config, files_.generation}) {
    const std::vector<int64_t> given = numbers(member(file, key));
    if (!found && !given.empty()) found = given[0];
  }
  // Encoders call the ends of a text by what they are for.
  if (!found && special.name == "bos") found = id(member(files_.settings, "cls_token"));
  if (!found && special.name == "eos") found = id(member(files_.settings, "sep_token"));
  if (!found) return;
  found_[special.name] = *found;
  set(special.key, *found);
}

// A chat may end with another token than a text.
void Ends::write_other_ends() {
  std::vector<int64_t> ends;
  for (const Json* file : {files_.generation, files_.config}) {
    for (const int64_t id : numbers(member(file, "eos_token_id"))) {
      const auto eos = found_.find("eos");
      if (eos != found_.end() && eos->second == id) continue;
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
    }
  }
  if (!ends.empty()) set("eot_token_id", ends[0]);
  if (ends.size() > 1) set("eom_token_id", ends[1]);
}

// Whether the template of a single text has the token at its begin or end.
std::optional<bool> Ends::flag_of_template(const std::string& name) const {
  for (const Json* step : parts_of(member(files_.tokenizer, "post_processor"), "processors")) {
    const Json* single = member(step, "single");
    if (type_of(step) != "TemplateProcessing" || single == nullptr || !single->is_array() ||
        single->size() < 2) {
      continue;
    }
    const Json& edge = name == "bos" ? single->front() : single->back();
    const auto special = ids_.find(text_of(member(member(&edge, "SpecialToken"), "id")));
    const auto own = found_.find(name);
    return special != ids_.end() && own != found_.end() && special->second == own->second;
  }
  return std::nullopt;
}

void Ends::write_flag(const std::string& name) {
  const std::string key = fmt::format("add_{}_token", name);
  std::optional<bool> flag = bool_of(member(files_.settings, key));
  if (!flag) flag = flag_of_template(name);
  if (flag) metadata_.set_bool(fmt::format("tokenizer.ggml.{}", key), *flag);
}

void write_normalizer(const Json* tokenizer, format::GgufMetadata* metadata) {
  const auto normalizers = parts_of(member(tokenizer, "normalizer"), "normalizers");
  const Json* bert = find_type(normalizers, "BertNormalizer");
  for (const char* name : {"lowercase", "strip_accents"}) {
    if (const auto flag = bool_of(member(bert, name))) {
      metadata->set_bool(fmt::format("tokenizer.ggml.normalizer.{}", name), *flag);
    }
  }
}

std::string chat_template_of(const TokenizerFiles& files) {
  if (!files.chat_template.empty()) return files.chat_template;
  const Json* value = member(files.settings, "chat_template");
  if (value == nullptr || !value->is_array()) return text_of(value);
  for (const Json& entry : *value) {
    if (text_of(member(&entry, "name")) == "default") return text_of(member(&entry, "template"));
  }
  return "";
}

}  // namespace

Result<void> add_tokenizer(const TokenizerFiles& files, const TokenizerOptions& options,
                           format::GgufMetadata* metadata, std::vector<std::string>* notes) {
  Builder builder(files, options);
  CULET_TRY(const Vocabulary vocabulary, builder.build());
  if (const auto& tokens = builder.left_out(); !tokens.empty()) {
    notes->push_back(fmt::format(
        "left out: '{}'{}, behind the last row of the embedding", base::utf8_shown(tokens[0]),
        tokens.size() == 1 ? ", an added token"
                           : fmt::format(" and {} more added tokens", tokens.size() - 1)));
  }
  metadata->set_string("tokenizer.ggml.model", vocabulary.model);
  if (!vocabulary.pre.empty()) metadata->set_string("tokenizer.ggml.pre", vocabulary.pre);
  metadata->set_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  if (!vocabulary.scores.empty()) {
    metadata->set_float32s("tokenizer.ggml.scores", vocabulary.scores);
  }
  metadata->set_int32s("tokenizer.ggml.token_type", vocabulary.kinds);
  if (!vocabulary.merges.empty()) {
    metadata->set_strings("tokenizer.ggml.merges", vocabulary.merges);
  }
  CULET_TRY_VOID(Ends(files, vocabulary, metadata).write());
  const auto prefix = bool_of(member(files.settings, "add_prefix_space"));
  if (vocabulary.model == "llama" && (prefix || vocabulary.space_prefix)) {
    metadata->set_bool("tokenizer.ggml.add_space_prefix",
                       prefix ? *prefix : *vocabulary.space_prefix);
  }
  write_normalizer(files.tokenizer, metadata);
  if (const std::string text = chat_template_of(files); !text.empty()) {
    metadata->set_string("tokenizer.chat_template", text);
  }
  return {};
}

}  // namespace culet::convert
