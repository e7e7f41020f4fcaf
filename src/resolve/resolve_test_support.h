// A folder that goes away, and stores to put into it.
#pragma once

#include "base/sha256.h"
#include "resolve/catalogue.h"
#include "resolve/places.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <unistd.h>

namespace culet::resolve {

class TempFolder {
 public:
  // In memory where that is possible: these tests make thousands of files and sync many of them.
  TempFolder() {
    for (const std::string& parent :
         {std::string("/dev/shm"), std::filesystem::temp_directory_path().string()}) {
      std::string pattern = parent + "/culet-resolve-XXXXXX";
      if (::mkdtemp(pattern.data())) {
        path_ = pattern;
        return;
      }
    }
    ADD_FAILURE() << "there is no place for temporary files";
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string sha256_of(const std::string& text) {
  return base::sha256_hex(std::as_bytes(std::span(text)));
}

// A GGUF file with an architecture and two tensors: 32 values F32 (128 bytes), 256 of Q4_K (144).
inline std::string tiny_gguf(const std::string& architecture) {
  std::string out = "GGUF";
  const auto u32 = [&out](uint32_t x) { out.append(reinterpret_cast<const char*>(&x), 4); };
  const auto u64 = [&out](uint64_t x) { out.append(reinterpret_cast<const char*>(&x), 8); };
  const auto text = [&](const std::string& s) {
    u64(s.size());
    out += s;
  };
  u32(3);
  u64(2);  // tensors
  u64(1);  // metadata
  text("general.architecture");
  u32(8);
  text(architecture);
  const struct {
    const char* name;
    uint64_t width;
    uint32_t type;
    uint64_t offset;
  } tensors[] = {{"a", 32, 0, 0}, {"b", 256, 12, 128}};
  for (const auto& tensor : tensors) {
    text(tensor.name);
    u32(1);
    u64(tensor.width);
    u32(tensor.type);
    u64(tensor.offset);
  }
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(128 + 144, '\1') + std::string(16, '\0');
}

// Places in one folder, none of which is there yet.
inline Places places_in(const TempFolder& folder) {
  Places places;
  places.home = folder / "home";
  places.ollama = folder / "ollama";
  places.hugging_face = folder / "hub";
  places.cache = folder / "cache";
  places.hf_endpoint = "https://huggingface.co";
  places.ollama_registry = "https://registry.ollama.ai";
  places.pypi_index = "https://pypi.org/simple";
  return places;
}

// Adds a model to the Ollama store; gives the path of its blob. `name` is HOST/NAMESPACE/MODEL/TAG.
inline std::string add_ollama(const Places& places, const std::string& name,
                              const std::string& content, const std::string& more_layers = "") {
  const std::string sha256 = sha256_of(content);
  const std::string blob = places.ollama + "/blobs/sha256-" + sha256;
  write_text(blob, content);
  write_text(places.ollama + "/manifests/" + name,
             R"({"schemaVersion": 2, "layers": [)" + more_layers +
                 R"({"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:)" +
                 sha256 + R"(", "size": )" + std::to_string(content.size()) + "}]}");
  return blob;
}

// Adds a file to a snapshot of the hub cache, as a link to a blob of its sha256.
inline std::string add_hub(const Places& places, const std::string& repo_folder,
                           const std::string& commit, const std::string& file,
                           const std::string& content) {
  const std::string repo = places.hugging_face + "/" + repo_folder;
  const std::string blob = repo + "/blobs/" + sha256_of(content);
  const std::string link = repo + "/snapshots/" + commit + "/" + file;
  write_text(blob, content);
  std::filesystem::create_directories(std::filesystem::path(link).parent_path());
  std::filesystem::create_symlink(blob, link);
  return link;
}

inline void set_ref(const Places& places, const std::string& repo_folder, const std::string& ref,
                    const std::string& commit) {
  write_text(places.hugging_face + "/" + repo_folder + "/refs/" + ref, commit);
}

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace culet::resolve
