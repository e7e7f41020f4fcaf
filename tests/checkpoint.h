// A published model folder, as tests write it: tensors by name, one safetensors file.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace culet::test {

using Json = nlohmann::ordered_json;

struct Weights {
  std::vector<uint64_t> shape;  // outermost first
  std::vector<float> values;
};
using Checkpoint = std::map<std::string, Weights>;

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// One safetensors file; dtype F32.
inline void write_safetensors(const std::string& path, const Checkpoint& weights) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : weights) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()), 4 * tensor.values.size());
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  write_text(path, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

}  // namespace culet::test
