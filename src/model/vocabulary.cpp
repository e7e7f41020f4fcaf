// Takes the metadata of a GGUF file; gives a text::Vocabulary, or says which key is wrong.
//
// Strict, because a vocabulary that is read half is worse than none: an array of the wrong element
// type, one that is shorter than the token list, or an id past its end would show up only as odd
// text much later. Keys that are absent stay absent; defaults are the tokenizer's business.
#include "model/vocabulary.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace culet::model {
namespace {

using format::GgufFile;
using format::MetaType;
using format::MetaValue;

std::string full_key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

tl::unexpected<Error> bad_key(const GgufFile& file, std::string_view name,
                              std::string_view problem) {
  return fail(ErrorCode::kCorrupt,
              fmt::format("{}: {} {}; the file is damaged or badly converted, fetch it again",
                          file.name(), full_key(name), problem));
}

Result<std::string_view> read_string(const GgufFile& file, std::string_view name) {
  const MetaValue* value = file.find(full_key(name));
  if (value == nullptr) return std::string_view();
  const std::optional<std::string_view> text = value->as_string();
  if (!text) return bad_key(file, name, "is not a string");
  return *text;
}

Result<std::optional<bool>> read_bool(const GgufFile& file, std::string_view name) {
  const MetaValue* value = file.find(full_key(name));
  if (value == nullptr) return std::nullopt;
  const std::optional<bool> flag = value->as_bool();
  if (!flag) return bad_key(file, name, "is not true or false");
  return flag;
}

Result<std::optional<text::Token>> read_id(const GgufFile& file, std::string_view name,
                                           size_t tokens) {
  const MetaValue* value = file.find(full_key(name));
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> id = value->as_int();
  if (!id) return bad_key(file, name, "is not an integer");
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens) {
    return bad_key(file, name, fmt::format("is {}, but the vocabulary has {} tokens", *id, tokens));
  }
  return static_cast<text::Token>(*id);
}

// The array, nullptr when absent; `tokens` elements when that is not 0.
Result<const MetaValue*> read_array(const GgufFile& file, std::string_view name, size_t tokens) {
  const MetaValue* value = file.find(full_key(name));
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return bad_key(file, name, "is not an array");
  if (tokens != 0 && value->size() != tokens) {
    return bad_key(
        file, name,
        fmt::format("has {} elements, but the vocabulary has {} tokens", value->size(), tokens));
  }
  return value;
}

Result<std::vector<std::string_view>> read_strings(const GgufFile& file, std::string_view name) {
  CULET_TRY(const MetaValue* array, read_array(file, name, 0));
  std::vector<std::string_view> texts;
  if (array == nullptr) return texts;
  if (array->element_type() != MetaType::kString) {
    return bad_key(file, name, "is not an array of strings");
  }
  texts.reserve(array->size());
  for (uint64_t i = 0; i < array->size(); ++i) texts.push_back(*array->at(i).as_string());
  return texts;
}

Result<std::vector<float>> read_scores(const GgufFile& file, size_t tokens) {
  CULET_TRY(const MetaValue* array, read_array(file, "scores", tokens));
  std::vector<float> scores;
  if (array == nullptr) return scores;
  if (array->element_type() != MetaType::kFloat32) {
    return bad_key(file, "scores", "is not an array of 32-bit floats");
  }
  scores.reserve(array->size());
  for (uint64_t i = 0; i < array->size(); ++i) {
    scores.push_back(static_cast<float>(*array->at(i).as_number()));
  }
  return scores;
}

Result<std::vector<text::TokenKind>> read_kinds(const GgufFile& file, size_t tokens) {
  CULET_TRY(const MetaValue* array, read_array(file, "token_type", tokens));
  std::vector<text::TokenKind> kinds;
  if (array == nullptr) return kinds;
  kinds.reserve(array->size());
  for (uint64_t i = 0; i < array->size(); ++i) {
    const std::optional<int64_t> kind = array->at(i).as_int();
    if (!kind) return bad_key(file, "token_type", "is not an array of integers");
    if (*kind < 1 || *kind > 6) {
      return bad_key(file, "token_type",
                     fmt::format("has {} for token {}, but types are 1 to 6", *kind, i));
    }
    kinds.push_back(static_cast<text::TokenKind>(*kind));
  }
  return kinds;
}

Result<std::string> read_bytes(const GgufFile& file, std::string_view name) {
  CULET_TRY(const MetaValue* array, read_array(file, name, 0));
  std::string bytes;
  if (array == nullptr) return bytes;
  if (array->element_type() != MetaType::kUint8 && array->element_type() != MetaType::kInt8) {
    return bad_key(file, name, "is not an array of bytes");
  }
  bytes.reserve(array->size());
  for (uint64_t i = 0; i < array->size(); ++i) {
    bytes.push_back(static_cast<char>(*array->at(i).as_int()));
  }
  return bytes;
}

Result<void> read_ids(const GgufFile& file, text::Vocabulary* vocabulary) {
  // "seperator" is how the format spells it.
  const std::pair<const char*, std::optional<text::Token>*> ids[] = {
      {"bos_token_id", &vocabulary->bos},     {"eos_token_id", &vocabulary->eos},
      {"unknown_token_id", &vocabulary->unk}, {"seperator_token_id", &vocabulary->sep},
      {"padding_token_id", &vocabulary->pad}, {"cls_token_id", &vocabulary->cls},
      {"eot_token_id", &vocabulary->eot},     {"eom_token_id", &vocabulary->eom},
  };
  for (const auto& [name, id] : ids) {
    CULET_TRY(*id, read_id(file, name, vocabulary->tokens.size()));
  }
  const std::pair<const char*, std::optional<bool>*> flags[] = {
      {"add_bos_token", &vocabulary->add_bos},
      {"add_eos_token", &vocabulary->add_eos},
      {"add_sep_token", &vocabulary->add_sep},
      {"add_space_prefix", &vocabulary->add_space_prefix},
      {"remove_extra_whitespaces", &vocabulary->remove_extra_whitespaces},
      {"normalizer.lowercase", &vocabulary->lowercase},
      {"normalizer.strip_accents", &vocabulary->strip_accents},
  };
  for (const auto& [name, flag] : flags) {
    CULET_TRY(*flag, read_bool(file, name));
  }
  return {};
}

}  // namespace

Result<text::Vocabulary> read_vocabulary(const GgufFile& file) {
  text::Vocabulary vocabulary;
  CULET_TRY(vocabulary.model, read_string(file, "model"));
  CULET_TRY(vocabulary.pre, read_string(file, "pre"));
  CULET_TRY(vocabulary.tokens, read_strings(file, "tokens"));
  if (vocabulary.model.empty() || vocabulary.tokens.empty()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: there is no vocabulary in the file (tokenizer.ggml.model and "
                            "tokenizer.ggml.tokens); convert the model again with its tokenizer",
                            file.name()));
  }
  const size_t tokens = vocabulary.tokens.size();
  CULET_TRY(vocabulary.scores, read_scores(file, tokens));
  CULET_TRY(vocabulary.kinds, read_kinds(file, tokens));
  CULET_TRY(vocabulary.merges, read_strings(file, "merges"));
  CULET_TRY(vocabulary.charsmap, read_bytes(file, "precompiled_charsmap"));
  CULET_TRY_VOID(read_ids(file, &vocabulary));
  if ((vocabulary.model == "llama" || vocabulary.model == "t5") && vocabulary.scores.empty()) {
    return bad_key(file, "scores",
                   fmt::format("is missing, which a `{}` tokenizer needs", vocabulary.model));
  }
  if ((vocabulary.model == "gpt2" || vocabulary.model == "gemma4") && vocabulary.merges.empty()) {
    return bad_key(file, "merges",
                   fmt::format("is missing, which a `{}` tokenizer needs", vocabulary.model));
  }
  return vocabulary;
}

}  // namespace culet::model
