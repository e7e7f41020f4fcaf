// Keys of the architecture, one by one: no key of a model file changes nothing in silence.
//
// tests/golden/architecture_keys.json lists the keys that programs write and read (the names are
// those of llama.cpp's src/llama-arch.cpp), each with a value that matters. Every tiny model is
// tried with each of them: it gives other numbers than without, or is refused with the name of the
// key, or the definition ignores the key by name, which needs a reason in the list and gives the
// same bits. docs/architecture-keys.md is the table of the outcomes; CULET_WRITE_DOCS=1 writes it.
#include "plan/compile.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>

namespace culet::test {
namespace {

using nlohmann::json;

constexpr const char* kModels[] = {
    "bert",          "gemma",         "gemma-embedding",  "gemma2",       "gemma3",
    "gemma3-linear", "gemma3n",       "gemma4-assistant", "gemma4-dense", "gemma4-e",
    "gemma4-moe",    "glm4",          "granite",          "lfm2",         "llama",
    "llama3-rope",   "mixtral",       "modernbert",       "olmo2",        "olmo3",
    "phi3",          "phi3-longrope", "phi3-window",      "qwen2",        "qwen3",
    "qwen3moe",      "smollm3"};

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
void put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Type and value as in a GGUF file; an array is one of its first element's type.
std::pair<uint32_t, std::string> encoded(const json& value) {
  std::string out;
  if (value.is_boolean()) return {7, std::string(1, value.get<bool>() ? '\1' : '\0')};
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    put(&out, uint64_t{text.size()});
    return {8, out + text};
  }
  if (value.is_array()) {
    put(&out, encoded(value[0]).first);
    put(&out, uint64_t{value.size()});
    for (const json& element : value) out += encoded(element).second;
    return {9, out};
  }
  if (value.is_number_float()) {
    put(&out, value.get<float>());
    return {6, out};
  }
  put(&out, value.get<uint32_t>());
  return {4, out};
}

// The model file with the key set to the value, whether it had the key or not.
std::string with_key(const std::string& data, const std::string& key, const json& value) {
  constexpr size_t kAlignment = 32, kEntries = 16;
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(data)), "model");
  if (!file) throw std::runtime_error(file.error().message);
  const auto at = [&](std::string_view text) {
    return static_cast<size_t>(text.data() - data.data()) - 8;  // the length stands before it
  };
  const auto tensors = file->tensors();
  const size_t directory = at(tensors[0].name);
  size_t directory_bytes = 0, body = data.size();
  for (const format::TensorInfo& t : tensors) {
    directory_bytes += 8 + t.name.size() + 4 + 8 * static_cast<size_t>(t.n_dims) + 4 + 8;
    body = std::min(body, static_cast<size_t>(reinterpret_cast<const char*>(t.data) - data.data()));
  }
  std::set<size_t> begins = {directory};
  size_t old = directory;
  for (const format::MetaEntry& entry : file->metadata()) {
    begins.insert(at(entry.key));
    if (entry.key == key) old = at(entry.key);
  }
  std::string out = data.substr(0, old);
  if (old != directory) {
    const size_t next = *begins.upper_bound(old);
    out += data.substr(next, directory - next);
  } else {
    uint64_t entries = 0;
    std::memcpy(&entries, data.data() + kEntries, sizeof entries);
    ++entries;
    std::memcpy(out.data() + kEntries, &entries, sizeof entries);
  }
  const auto [type, bytes] = encoded(value);
  put(&out, uint64_t{key.size()});
  out += key;
  put(&out, type);
  out += bytes + data.substr(directory, directory_bytes);
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  return out + data.substr(body);
}

class Keys : public testing::Test {
 protected:
  struct Tiny {
    std::string data, prefix, kind;
    Rows rows;  // of the file as it is
  };
  enum class Outcome { kUsed, kIgnored, kRefused };

  Keys() : list_(read_json(golden("architecture_keys.json"))) {}
  ~Keys() override { std::filesystem::remove(path_); }

  Tiny tiny(const std::string& name) {
    Tiny t;
    t.data = text_of(golden("tiny/" + name + "/model.gguf"));
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(t.data)), name);
    EXPECT_TRUE(file);
    t.prefix = std::string(*file->find("general.architecture")->as_string()) + ".";
    const auto made = compile(t.data, t);
    EXPECT_TRUE(made) << made.error().message;
    t.kind = made->plan.kind;
    t.rows = rows(t.data, t);
    return t;
  }

  Result<plan::Compiled> compile(const std::string& data, const Tiny& t) {
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(data)), "model");
    if (!file) return tl::unexpected(file.error());
    plan::CompileOptions options{.precise = true};
    if (t.prefix == "gemma4-assistant.") options.target = &target_file();
    return plan::compile(library_, *file, options);
  }

  Rows rows(const std::string& data, const Tiny& t) {
    std::ofstream(path_, std::ios::binary) << data;
    ModelOptions options{.threads = 1, .precise = true};
    if (t.kind == "draft") options.target = target();
    const auto model = load(path_, options);
    std::vector<Token> tokens;
    tokens.reserve(40);
    for (Token id = 0; id < 40; ++id) tokens.push_back(5 + id * 37 % 350);
    if (t.kind == "encoder") {
      Rows all = *encode(*model, {{tokens}});
      if (const auto vectors = embed(*model, {{tokens}})) all.push_back((*vectors)[0]);
      return all;
    }
    if (t.kind == "decoder") return append_rows(*session(model, KvType::kF32), tokens);
    const auto with = session(target(), KvType::kF32);
    expect_ok(with->append(tokens));
    std::vector<float> hidden(64);
    for (size_t n = 0; n < hidden.size(); ++n) hidden[n] = static_cast<float>(n % 7) - 3;
    const auto drafted = draft(*model, *with, 7, hidden);
    if (!drafted) throw std::runtime_error(drafted.error().message);
    return {{drafted->logits.begin(), drafted->logits.end()},
            {drafted->hidden.begin(), drafted->hidden.end()}};
  }

  // Whether the file as it is has this number.
  static bool has(const Tiny& t, const std::string& key, const json& value) {
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(t.data)), "model");
    const format::MetaValue* old = file->find(t.prefix + key);
    return old && value.is_number() && old->as_number() == value.get<double>();
  }

  // Where the file has a flag for each layer: those, turned around.
  static std::optional<json> flags_of(const Tiny& t, const std::string& key) {
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(t.data)), "model");
    const format::MetaValue* old = file->find(t.prefix + key);
    if (!old || !old->is_array() || !old->at(0).as_bool()) return std::nullopt;
    json flags;
    for (uint64_t n = 0; n < old->size(); ++n) flags.push_back(!*old->at(n).as_bool());
    return flags;
  }

  // Sets the key and checks that what becomes of the model is one of the three outcomes.
  Outcome outcome(const Tiny& t, const json& one) {
    const std::string key = one["key"];
    json value = t.kind == "encoder" && one.contains("encoder") ? one["encoder"] : one["value"];
    if (const auto flags = flags_of(t, key)) {
      value = *flags;
    } else if (has(t, key, value) && one.contains("other")) {
      value = one["other"];
    }
    const std::string data = with_key(t.data, t.prefix + key, value);
    const auto made = compile(data, t);
    if (!made) {
      // What does not fit the tensors is used; the message may name these instead of the key.
      const std::string& message = made.error().message;
      const bool unread = message.find("model file sets") != std::string::npos;
      const bool by_shape = one.value("tensors", false) && !unread;
      EXPECT_TRUE(by_shape || message.find(key) != std::string::npos) << message;
      return by_shape ? Outcome::kUsed : Outcome::kRefused;
    }
    const auto& unread = made->unread_keys;
    const bool ignored = std::find(unread.begin(), unread.end(), t.prefix + key) != unread.end();
    const bool same = first_difference(rows(data, t), t.rows).empty();
    EXPECT_EQ(ignored, same) << (same ? "the same bits" : "other bits");
    EXPECT_TRUE(!ignored || one.contains("why")) << "ignored without a reason in the list";
    return ignored ? Outcome::kIgnored : Outcome::kUsed;
  }

  // A key that is used is an error of its name where it has the wrong type, or is a list.
  void expect_types(const Tiny& t, const json& one) {
    const std::string key = one["key"];
    const json wrong[] = {one["value"].is_string() ? json(7) : json("text"), json({1, 2, 3})};
    for (const json& value : wrong) {
      SCOPED_TRACE(value.dump());
      const auto made = compile(with_key(t.data, t.prefix + key, value), t);
      if (made) {
        ADD_FAILURE() << "accepted";
      } else {
        EXPECT_NE(made.error().message.find(key), std::string::npos) << made.error().message;
      }
    }
  }

  // A value that changes nothing is accepted where the file does not have the key.
  void expect_neutral(const Tiny& t, const json& one, const json& value) {
    const std::string key = t.prefix + one["key"].get<std::string>();
    const auto file = format::GgufFile::parse(std::as_bytes(std::span(t.data)), "model");
    if (file->find(key)) return;
    const std::string data = with_key(t.data, key, value);
    const auto made = compile(data, t);
    if (made) {
      EXPECT_EQ(first_difference(rows(data, t), t.rows), "");
    } else {  // a family that reads the key may have a reason of its own, which names it
      EXPECT_NE(made.error().message.find(one["key"].get<std::string>()), std::string::npos);
      refused_neutral_.insert(t.prefix + one["key"].get<std::string>());
    }
  }

  std::shared_ptr<const Model> target() {
    if (!target_)
      target_ = load(golden("tiny/gemma4-e/model.gguf"), {.threads = 1, .precise = true});
    return target_;
  }
  const format::GgufFile& target_file() {
    if (target_data_.empty()) {
      target_data_ = text_of(golden("tiny/gemma4-e/model.gguf"));
      target_file_ = *format::GgufFile::parse(std::as_bytes(std::span(target_data_)), "target");
    }
    return *target_file_;
  }

  const json list_;
  const plan::ArchLibrary library_ = *plan::ArchLibrary::open("");
  const std::string path_ =
      std::filesystem::temp_directory_path() / ("culet-keys-" + std::to_string(getpid()) + ".gguf");
  std::shared_ptr<const Model> target_;
  std::string target_data_;
  std::optional<format::GgufFile> target_file_;
  std::set<std::string> refused_neutral_;
};

// "all", "all but a, b", "a, b" or "-".
std::string names_text(const std::set<std::string>& some, const std::set<std::string>& all) {
  if (some.empty()) return "-";
  const bool most = some.size() * 2 > all.size() + 1;
  std::string out;
  for (const std::string& name : all)
    if ((some.count(name) == 0) == most) out += (out.empty() ? "" : ", ") + name;
  if (!most) return out;
  return out.empty() ? "all" : "all but " + out;
}

// Requirement files.architecture-keys "keys of the architecture": each key of a model file is used,
// ignored by name with a reason, or refused by name; docs/architecture-keys.md is current
TEST_F(Keys, AreUsedIgnoredByNameOrRefused) {
  std::map<std::string, std::map<Outcome, std::set<std::string>>> seen;
  std::set<std::string> families;
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const Tiny t = tiny(name);
    const std::string family = t.prefix.substr(0, t.prefix.size() - 1);
    families.insert(family);
    for (const json& one : list_) {
      const std::string key = one["key"];
      SCOPED_TRACE(key);
      const Outcome o = outcome(t, one);
      EXPECT_TRUE(key != "some_unknown_thing" || o == Outcome::kRefused);
      seen[key][o].insert(family);
      if (o == Outcome::kUsed) expect_types(t, one);
      for (const json& value : one.value("neutral", json::array())) expect_neutral(t, one, value);
    }
  }
  EXPECT_EQ(testing::PrintToString(refused_neutral_), "{}");
  std::ostringstream table;
  for (const json& one : list_) {
    const std::string key = one["key"];
    const std::string why = one.value("why", "");
    std::string neutral;
    for (const json& value : one.value("neutral", json::array()))
      neutral += (neutral.empty() ? "" : ", ") + value.dump();
    auto& of = seen[key];
    table << "| `" << key << "` | " << one["value"].dump()
          << (one.contains("encoder") ? ", encoders " + one["encoder"].dump() : "") << " | "
          << names_text(of[Outcome::kUsed], families) << " | "
          << names_text(of[Outcome::kIgnored], families)
          << (of[Outcome::kIgnored].empty() ? "" : ": " + why) << " | "
          << names_text(of[Outcome::kRefused], families) << " | " << neutral << " |\n";
  }
  const std::string path = golden("../../docs/architecture-keys.md"), page = text_of(path);
  const std::string mark = "|---|---|---|---|---|---|\n";
  const size_t head = page.find(mark);
  ASSERT_NE(head, std::string::npos) << path;
  const std::string wanted = page.substr(0, head + mark.size()) + table.str();
  if (std::getenv("CULET_WRITE_DOCS")) {  // NOLINT(concurrency-mt-unsafe)
    std::ofstream(path, std::ios::binary) << wanted;
  } else {
    EXPECT_TRUE(page == wanted) << path << " is stale; run this test with CULET_WRITE_DOCS=1";
  }
}

// cap * tanh(x / cap) of every logit; 0 is no cap.
// Verifies files.architecture-keys.
TEST_F(Keys, FinalLogitsAreCapped) {
  for (const char* name : {"gemma2", "gemma3", "gemma3n", "gemma4-dense"}) {
    SCOPED_TRACE(name);
    const Tiny t = tiny(name);
    const auto capped = [&](double cap) {
      return rows(with_key(t.data, t.prefix + "final_logit_softcapping", cap), t);
    };
    const Rows raw = capped(0), five = capped(5);
    double most = 0;
    for (size_t row = 0; row < raw.size(); ++row) {
      for (size_t id = 0; id < raw[row].size(); ++id) {
        const double x = static_cast<double>(raw[row][id]);
        most = std::max(most, std::fabs(x));
        ASSERT_NEAR(static_cast<double>(five[row][id]), 5 * std::tanh(x / 5), 1e-4);
      }
    }
    EXPECT_GT(most, 1);
  }
}

// A factor without a type is that of linear scaling, as in llama.cpp.
// Verifies files.architecture-keys.
TEST_F(Keys, ARopeFactorWithoutTypeIsLinear) {
  const std::string folder = golden("field/rope-factor-without-type/");
  const auto ids = read_json(folder + "ids.json").get<std::vector<Token>>();
  const auto mean = [&](const std::string& data) {
    std::ofstream(path_, std::ios::binary) << data;
    const auto model = load(path_, {.threads = 1, .precise = true});
    const Rows rows = append_rows(*session(model, KvType::kF32), ids);
    double sum = 0;
    for (size_t n = 1; n < ids.size(); ++n) sum += nll(*model, rows[n - 1], ids[n]);
    return sum / static_cast<double>(ids.size() - 1);
  };
  const std::string none = text_of(folder + "none.gguf"), typed = text_of(folder + "typed.gguf");
  const double without = mean(none), linear = mean(typed);
  EXPECT_NEAR(without, 8.420740, 1e-5);
  EXPECT_NEAR(linear, 8.073000, 1e-5);
  EXPECT_EQ(mean(text_of(folder + "factor.gguf")), linear);
  EXPECT_EQ(mean(with_key(none, "llama.rope.scaling.factor", 4.0)), linear);
  EXPECT_EQ(mean(with_key(none, "llama.rope.scale_linear", 4.0)), linear);  // the older name
  EXPECT_EQ(mean(with_key(none, "llama.rope.scaling.factor", 0.0)), without);
  EXPECT_EQ(mean(with_key(typed, "llama.rope.scaling.type", "none")), without);
}

}  // namespace
}  // namespace culet::test
