#include "support.h"

#include "format/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

namespace culet::test {

using nlohmann::json;

std::string golden(const std::string& path) {
  return std::string(CULET_TEST_DATA) + "/golden/" + path;
}

std::string arch_folder(const std::string& name) {
  return std::string(CULET_TEST_DATA) + "/arch/" + name;
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return json::parse(file);
}

std::vector<nlohmann::ordered_json> read_json_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<nlohmann::ordered_json> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(nlohmann::ordered_json::parse(line));
  }
  return lines;
}

void add_metadata(const std::string& source, const std::string& target, const std::string& key,
                  const std::vector<int32_t>& values) {
  constexpr size_t kAlignment = 32, kEntries = 16;  // where the number of entries stands
  std::ifstream in(source, std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(in)), {});
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(data)), source);
  if (!file) throw std::runtime_error(file.error().message);
  const auto tensors = file->tensors();
  const auto directory = static_cast<size_t>(tensors[0].name.data() - data.data()) - 8;
  size_t directory_bytes = 0, body = data.size();
  for (const format::TensorInfo& t : tensors) {
    directory_bytes += 8 + t.name.size() + 4 + 8 * static_cast<size_t>(t.n_dims) + 4 + 8;
    body = std::min(body, static_cast<size_t>(reinterpret_cast<const char*>(t.data) - data.data()));
  }
  std::string out = data.substr(0, directory);
  const auto put = [&out](auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  uint64_t entries = 0;
  std::memcpy(&entries, data.data() + kEntries, sizeof entries);
  ++entries;
  std::memcpy(out.data() + kEntries, &entries, sizeof entries);
  put(uint64_t{key.size()});
  out += key;
  put(uint32_t{9});  // an array
  put(uint32_t{5});  // of int32
  put(uint64_t{values.size()});
  for (const int32_t value : values) put(value);
  out += data.substr(directory, directory_bytes);
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  std::ofstream(target, std::ios::binary) << out << data.substr(body);
}

TensorBytes unchanged(const format::TensorInfo& tensor) {
  return {static_cast<uint32_t>(tensor.type),
          {reinterpret_cast<const char*>(tensor.data), tensor.bytes}};
}

void rewrite_tensors(const std::string& source, const std::string& target,
                     const std::function<TensorBytes(const format::TensorInfo&)>& convert) {
  std::ifstream in(source, std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(in)), {});
  const auto file = format::GgufFile::parse(std::as_bytes(std::span(data)), source);
  if (!file) throw std::runtime_error(file.error().message);
  const auto directory = static_cast<size_t>(file->tensors()[0].name.data() - data.data()) - 8;
  std::string out = data.substr(0, directory), body;
  const auto put = [&out](auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const format::TensorInfo& tensor : file->tensors()) {
    const TensorBytes made = convert(tensor);
    put(uint64_t{tensor.name.size()});
    out += tensor.name;
    put(static_cast<uint32_t>(tensor.n_dims));
    for (int i = 0; i < tensor.n_dims; ++i) put(tensor.dims[static_cast<size_t>(i)]);
    put(made.type);
    put(uint64_t{body.size()});
    body += made.bytes;
    body.resize((body.size() + 31) / 32 * 32, '\0');
  }
  out.resize((out.size() + 31) / 32 * 32, '\0');
  std::ofstream(target, std::ios::binary) << out << body;
}

std::shared_ptr<const Model> load(const std::string& path, const ModelOptions& options) {
  auto model = Model::load(path, options);
  if (!model) throw std::runtime_error(model.error().message);
  return *std::move(model);
}

std::unique_ptr<Session> session(std::shared_ptr<const Model> model, KvType kv) {
  auto made = Session::make(std::move(model), {.keys = kv, .values = kv});
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

void expect_ok(const Result<void>& result) {
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
}

Rows append_rows(Session& session, std::span<const Token> tokens, std::span<const int64_t> chunks) {
  Rows rows;
  const auto row = [&](int64_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  };
  size_t at = 0;
  for (const int64_t chunk : chunks) {
    expect_ok(session.append_each(tokens.subspan(at, static_cast<size_t>(chunk)), row));
    at += static_cast<size_t>(chunk);
  }
  if (at < tokens.size()) expect_ok(session.append_each(tokens.subspan(at), row));
  return rows;
}

Rows rows_of(const std::string& path, const ModelOptions& options, KvType kv,
             std::span<const Token> tokens) {
  return append_rows(*session(load(path, options), kv), tokens);
}

std::vector<Token> tokens_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(3 + random() % 500);
  return tokens;
}

Token best(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double nll(const Model& model, std::span<const float> logits, Token id) {
  const auto value = logprob(model, logits, id);
  if (!value) throw std::runtime_error(value.error().message);
  return -*value;
}

double largest_difference(std::span<const float> a, const json& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i].get<double>()));
  }
  return largest;
}

std::string first_difference(const Rows& a, const Rows& b) {
  if (a.size() != b.size()) return fmt::format("{} rows and {} rows", a.size(), b.size());
  for (size_t row = 0; row < a.size(); ++row) {
    if (a[row].size() != b[row].size()) return fmt::format("row {} has another width", row);
    for (size_t id = 0; id < a[row].size(); ++id) {
      if (std::memcmp(&a[row][id], &b[row][id], sizeof(float)) != 0) {
        return fmt::format("row {}, id {}: {} and {}", row, id, a[row][id], b[row][id]);
      }
    }
  }
  return "";
}

std::vector<std::string> usable_sets() {
  std::vector<std::string> names;
  for (const auto& [name, usable] : instruction_sets()) {
    if (usable) names.push_back(name);
  }
  return names;
}

uint64_t held_bytes(const Session& session) {
  const SessionMemory memory = session.memory();
  return memory.own + memory.shared;
}

bool small_tests() {
  return std::getenv("CULET_TEST_SIZE") != nullptr;  // NOLINT(concurrency-mt-unsafe)
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

}  // namespace culet::test
