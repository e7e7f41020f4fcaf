// The tokenizer that make() returns: special tokens, BOS and EOS; the text between is an Encoder's.
//
// Tokenizing has three steps. (1) The pieces are joined; control tokens are looked for inside runs
// of template pieces only, so no text of a user can spell one, not even half of one. (2) What lies
// between them is one stream of text, across the borders of pieces; user-defined tokens, which are
// ordinary text with an id of its own, are matched in it. (3) The rest goes to the encoder. Plain
// text is one piece: a template piece when special tokens are to be parsed, else a user's.
#include "text/tokenizer.h"

#include "text/encoder.h"
#include "text/end_of_generation.h"
#include "text/pretokenizer.h"
#include "text/special_matcher.h"
#include "text/token_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace culet::text {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;

// SentencePiece's own numbers, for files that do not name these tokens.
constexpr Token kSpmUnknown = 0, kSpmBos = 1, kSpmEos = 2;
constexpr Token kT5Eos = 1, kT5Unknown = 2;

using Match = SpecialMatcher::Match;

enum class Family { kBpe, kSpm, kGemma4, kWordPiece, kUnigram };

// By tokenizer.ggml.model. Only the name decides: what arrays a file has says nothing, since some
// carry both scores and merges.
constexpr std::pair<std::string_view, Family> kFamilies[] = {{"gpt2", Family::kBpe},
                                                             {"llama", Family::kSpm},
                                                             {"gemma4", Family::kGemma4},
                                                             {"bert", Family::kWordPiece},
                                                             {"t5", Family::kUnigram}};

bool is_special(TokenKind kind) {  // matched only where special tokens are parsed
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

class VocabularyTokenizer final : public Tokenizer {
 public:
  explicit VocabularyTokenizer(TokenTable table) : table_(std::move(table)) {}

  Result<void> init(const Vocabulary& vocabulary);

  Result<std::vector<Token>> tokenize(std::string_view text,
                                      const TokenizeOptions& options) const override {
    const Piece piece{text, options.parse_special};
    return encode_pieces(std::span(&piece, 1), options);
  }
  Result<std::vector<Token>> tokenize_pieces(std::span<const Piece> pieces, bool begin,
                                             std::string_view source) const override {
    return encode_pieces(pieces, {.begin = begin, .end = false}, source);
  }

  int32_t size() const override { return table_.size(); }
  bool is_control(Token t) const override {
    return table_.contains(t) && table_.kind(t) == TokenKind::kControl;
  }
  bool is_end_of_generation(Token t) const override {
    return table_.contains(t) && ends_[static_cast<size_t>(t)];
  }
  std::optional<Token> bos() const override { return bos_; }
  std::optional<Token> eos() const override { return eos_; }
  std::optional<Token> find(std::string_view token_text) const override {
    const Token t = table_.find(token_text);
    return t == kNoToken ? std::nullopt : std::optional(t);
  }
  std::string piece(Token t, bool special) const override {
    std::string out;
    append_piece(t, special, &out);
    return out;
  }
  void append_piece(Token t, bool special, std::string* out) const override;
  TokenKind kind(Token t) const override {
    return table_.contains(t) ? table_.kind(t) : TokenKind::kUnused;
  }
  std::string_view text(Token t) const override {
    return table_.contains(t) ? table_.text(t) : std::string_view();
  }
  std::string detokenize(std::span<const Token> ids, bool remove_special,
                         bool special) const override;

 private:
  Result<void> set_family(std::string_view model);
  Result<void> set_ids(const Vocabulary& vocabulary);
  void set_default_ids(const Vocabulary& vocabulary);
  Result<void> add_special_texts();
  Result<void> make_encoder(const Vocabulary& vocabulary);
  std::optional<Token> control(std::optional<Token> id, std::string_view text) const;
  void add_markup(std::string_view text, std::set<Token>* markup) const;
  std::vector<Match> control_tokens(std::string_view text, std::span<const Span> runs,
                                    const std::set<Token>& markup) const;
  Result<std::vector<Token>> encode_pieces(std::span<const Piece> pieces,
                                           const TokenizeOptions& options,
                                           std::string_view source = {}) const;
  Result<void> encode_between(std::string_view text, bool starts_text,
                              const std::set<Token>& markup, std::vector<Token>* out) const;

  TokenTable table_;
  std::unique_ptr<Encoder> encoder_;
  SpecialMatcher parsed_;        // control, unknown and user-defined tokens
  SpecialMatcher user_defined_;  // these alone
  std::vector<bool> ends_;
  std::optional<Token> bos_, eos_;
  std::optional<Token> first_, last_;  // what tokenizing with special tokens adds
  Family family_ = Family::kBpe;
  bool space_prefix_ = false;  // texts begin with a space that nobody wrote
};

Result<void> VocabularyTokenizer::init(const Vocabulary& vocabulary) {
  CULET_TRY_VOID(set_family(vocabulary.model));
  CULET_TRY_VOID(set_ids(vocabulary));
  CULET_TRY_VOID(add_special_texts());
  return make_encoder(vocabulary);
}

Result<void> VocabularyTokenizer::set_family(std::string_view model) {
  for (const auto& [name, family] : kFamilies) {
    if (name != model) continue;
    family_ = family;
    return {};
  }
  std::string names;
  for (const auto& [name, family] : kFamilies) {
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("the tokenizer model `{}` (tokenizer.ggml.model) is not supported; use a "
                          "model with one of {}",
                          model, names));
}

Result<void> VocabularyTokenizer::set_ids(const Vocabulary& vocabulary) {
  const std::pair<const char*, std::optional<Token>> named[] = {
      {"bos", vocabulary.bos},       {"eos", vocabulary.eos},     {"unknown", vocabulary.unk},
      {"seperator", vocabulary.sep}, {"padding", vocabulary.pad}, {"cls", vocabulary.cls},
      {"eot", vocabulary.eot},       {"eom", vocabulary.eom}};
  for (const auto& [name, id] : named) {
    if (id && !table_.contains(*id)) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("tokenizer.ggml.{}_token_id is {}, but the vocabulary has {} tokens; "
                              "the file is damaged or badly converted, fetch it again",
                              name, *id, table_.size()));
    }
  }
  set_default_ids(vocabulary);
  ends_ = ends_generation(table_);
  for (const std::optional<Token> id : {eos_, vocabulary.eot, vocabulary.eom}) {
    if (id) ends_[static_cast<size_t>(*id)] = true;
  }
  return {};
}

// What a family means where the file is silent.
void VocabularyTokenizer::set_default_ids(const Vocabulary& vocabulary) {
  const auto or_control = [this](std::optional<Token> id, Token other) {
    return id || !is_control(other) ? id : std::optional(other);
  };
  bos_ = vocabulary.bos;
  eos_ = vocabulary.eos;
  bool add_first = true;
  std::optional<Token> last;
  switch (family_) {
    case Family::kBpe: {
      const PretokenizerRow* row = find_pretokenizer(vocabulary.pre);
      add_first = row != nullptr && row->add_bos;
      break;
    }
    case Family::kSpm:
      bos_ = or_control(bos_, kSpmBos);
      eos_ = or_control(eos_, kSpmEos);
      break;
    case Family::kGemma4:
      break;
    case Family::kWordPiece:
      bos_ = control(vocabulary.cls ? vocabulary.cls : bos_, "[CLS]");
      if (vocabulary.add_sep.value_or(true)) last = control(vocabulary.sep, "[SEP]");
      break;
    case Family::kUnigram:
      eos_ = or_control(eos_, kT5Eos);
      add_first = false;
      if (vocabulary.add_eos.value_or(true)) last = eos_;
      break;
  }
  if (vocabulary.add_bos.value_or(add_first)) first_ = bos_;
  last_ = vocabulary.add_eos.value_or(false) ? eos_ : last;
}

// The id, or the control token with this text.
std::optional<Token> VocabularyTokenizer::control(std::optional<Token> id,
                                                  std::string_view text) const {
  if (id) return id;
  const Token t = table_.find(text);
  return t != kNoToken && is_special(table_.kind(t)) ? std::optional(t) : std::nullopt;
}

Result<void> VocabularyTokenizer::make_encoder(const Vocabulary& vocabulary) {
  switch (family_) {
    case Family::kBpe: {
      CULET_TRY(encoder_, make_bpe(vocabulary, table_));
      break;
    }
    case Family::kSpm: {
      space_prefix_ = vocabulary.add_space_prefix.value_or(true);
      CULET_TRY(encoder_,
                make_spm(vocabulary, table_, space_prefix_, vocabulary.unk.value_or(kSpmUnknown)));
      break;
    }
    case Family::kGemma4: {
      space_prefix_ = vocabulary.add_space_prefix.value_or(false);
      const std::optional<Token> unknown = control(vocabulary.unk, "<unk>");
      CULET_TRY(encoder_, make_gemma4(vocabulary, table_, space_prefix_, unknown.value_or(0)));
      break;
    }
    case Family::kWordPiece: {
      space_prefix_ = true;
      const std::optional<Token> unknown = control(vocabulary.unk, "[UNK]");
      if (!unknown) {
        return fail(ErrorCode::kCorrupt,
                    "the vocabulary names no unknown token (tokenizer.ggml.unknown_token_id), "
                    "which a `bert` tokenizer needs; convert the model again");
      }
      encoder_ = make_wordpiece(vocabulary, table_, *unknown);
      break;
    }
    case Family::kUnigram: {
      space_prefix_ = vocabulary.add_space_prefix.value_or(true);
      const Token unknown = vocabulary.unk.value_or(table_.contains(kT5Unknown) ? kT5Unknown : 0);
      CULET_TRY(encoder_, make_unigram(vocabulary, table_, space_prefix_, unknown));
      break;
    }
  }
  return {};
}

Result<void> VocabularyTokenizer::add_special_texts() {
  for (Token t = 0; t < table_.size(); ++t) {
    const TokenKind kind = table_.kind(t);
    if (kind == TokenKind::kByte && !table_.byte(t)) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("token {} is a byte token, but its text is not of the form <0x00>; "
                              "the file is damaged or badly converted, fetch it again",
                              t));
    }
    if (kind == TokenKind::kUserDefined) user_defined_.add(table_.text(t), t);
    if (kind == TokenKind::kUserDefined || is_special(kind)) parsed_.add(table_.text(t), t);
  }
  user_defined_.build();
  parsed_.build();
  return {};
}

// Adds the user-defined tokens of a template's text that are marks of its format, such as
// <tool_call>: their text begins and ends with punctuation.
void VocabularyTokenizer::add_markup(std::string_view text, std::set<Token>* markup) const {
  const auto is_mark = [](char c) {
    return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
           !(c >= 'A' && c <= 'Z');
  };
  for (const Match& match : user_defined_.find(text)) {
    const std::string_view token = table_.text(match.token);
    if (token.size() > 2 && is_mark(token.front()) && is_mark(token.back())) {
      markup->insert(match.token);
    }
  }
}

// Where control tokens, and user-defined ones that count as such, lie inside the runs of template
// text.
std::vector<Match> VocabularyTokenizer::control_tokens(std::string_view text,
                                                       std::span<const Span> runs,
                                                       const std::set<Token>& markup) const {
  std::vector<Match> found;
  for (const Span run : runs) {
    for (Match match : parsed_.find(text.substr(run.begin, run.end - run.begin))) {
      if (!is_special(table_.kind(match.token)) && markup.count(match.token) == 0) continue;
      match.begin += run.begin;
      found.push_back(match);
    }
  }
  return found;
}

Result<void> VocabularyTokenizer::encode_between(std::string_view text, bool starts_text,
                                                 const std::set<Token>& markup,
                                                 std::vector<Token>* out) const {
  size_t done = 0;
  for (const Match& match : user_defined_.find(text)) {
    if (markup.count(match.token) != 0) continue;  // stays text
    if (match.begin > done) {
      CULET_TRY_VOID(encoder_->encode(text.substr(done, match.begin - done), starts_text, out));
    }
    out->push_back(match.token);
    done = match.begin + match.size;
    starts_text = true;
  }
  if (done == text.size()) return {};
  return encoder_->encode(text.substr(done), starts_text, out);
}

Result<std::vector<Token>> VocabularyTokenizer::encode_pieces(std::span<const Piece> pieces,
                                                              const TokenizeOptions& options,
                                                              std::string_view source) const {
  std::string joined;
  std::vector<Span> runs;  // of template pieces, neighbours taken together
  size_t end = 0;
  for (const Piece& piece : pieces) {
    if (pieces.size() > 1) joined += piece.text;
    const size_t start = std::exchange(end, end + piece.text.size());
    if (!piece.is_template || start == end) continue;
    if (!runs.empty() && runs.back().end == start) {
      runs.back().end = end;
    } else {
      runs.push_back({start, end});
    }
  }
  if (end > kMaxText) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the text has {} bytes, but at most {} can be tokenized at once; split "
                            "it up",
                            end, kMaxText));
  }
  const std::string_view text = pieces.size() == 1 ? pieces[0].text : std::string_view(joined);

  std::set<Token> markup;
  if (pieces.size() > 1 || !source.empty()) {
    for (const Span run : runs) add_markup(text.substr(run.begin, run.end - run.begin), &markup);
    add_markup(source, &markup);
  }

  std::vector<Token> out;
  const bool begin = options.begin && !options.continued && first_;
  if (begin) out.push_back(*first_);
  size_t done = 0;
  for (const Match& match : control_tokens(text, runs, markup)) {
    CULET_TRY_VOID(encode_between(text.substr(done, match.begin - done),
                                  !options.continued || done > 0, markup, &out));
    out.push_back(match.token);
    done = match.begin + match.size;
  }
  CULET_TRY_VOID(encode_between(text.substr(done), !options.continued || done > 0, markup, &out));
  if (begin && out.size() > 1 && out[1] == *first_) out.erase(out.begin());
  if (options.end && last_ && (out.empty() || out.back() != *last_)) out.push_back(*last_);
  return out;
}

void VocabularyTokenizer::append_piece(Token t, bool special, std::string* out) const {
  if (!table_.contains(t)) return;
  switch (table_.kind(t)) {
    case TokenKind::kNormal:
      encoder_->append_text(t, out);
      break;
    case TokenKind::kUnknown:
    case TokenKind::kControl:
      if (special) out->append(table_.text(t));
      break;
    case TokenKind::kUserDefined:
      if (family_ == Family::kSpm ||
          family_ == Family::kUnigram) {  // some files spell runs of spaces with markers here too
        encoder_->append_text(t, out);
      } else {
        out->append(table_.text(t));
      }
      break;
    case TokenKind::kUnused:
      break;
    case TokenKind::kByte:
      out->push_back(static_cast<char>(*table_.byte(t)));
      break;
  }
}

std::string VocabularyTokenizer::detokenize(std::span<const Token> ids, bool remove_special,
                                            bool special) const {
  if (remove_special && first_ && !ids.empty() && ids.front() == *first_) {
    ids = ids.subspan(1);
  }
  if (remove_special && last_ && !ids.empty() && ids.back() == *last_) {
    ids = ids.first(ids.size() - 1);
  }
  std::string out;
  bool starts_text = true;  // the encoder put a space here
  for (const Token t : ids) {
    const size_t before = out.size();
    append_piece(t, special, &out);
    const bool normal = table_.contains(t) && table_.kind(t) == TokenKind::kNormal;
    if (space_prefix_ && starts_text && normal && out.size() > before && out[before] == ' ') {
      out.erase(before, 1);
    }
    starts_text = table_.contains(t) &&
                  (is_special(table_.kind(t)) || table_.kind(t) == TokenKind::kUserDefined);
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::make(const Vocabulary& vocabulary) {
  CULET_TRY(TokenTable table, TokenTable::make(vocabulary));
  auto tokenizer = std::make_shared<VocabularyTokenizer>(std::move(table));
  CULET_TRY_VOID(tokenizer->init(vocabulary));
  return tokenizer;
}

}  // namespace culet::text
