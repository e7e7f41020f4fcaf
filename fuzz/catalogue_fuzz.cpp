// Any bytes as each document that comes from a store, a hub or an index: refused, or what it names
// can be joined to a folder without leaving it.
#include "resolve/catalogue.h"
#include "resolve/disk.h"
#include "resolve/gguf_files.h"
#include "resolve/http.h"
#include "resolve/hugging_face.h"
#include "resolve/name.h"
#include "resolve/ollama.h"
#include "resolve/own_cache.h"
#include "resolve/remote.h"
#include "resolve/zip.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace culet::resolve;

void check(bool good) {
  if (!good) std::abort();
}

void documents(std::string_view text) {
  if (const auto catalogue = parse_catalogue(text)) {
    for (const CatalogueModel& model : catalogue->models) {
      check(is_safe_relative(model.file) && model.file.find('/') == std::string::npos);
      check(is_hex(model.sha256, 64) && catalogue->find(model.name) == &model);
    }
  }
  if (const auto manifest = parse_ollama_manifest(text)) {
    check(is_hex(manifest->model.sha256, 64) && manifest->model.bytes > 0);
  }
  if (const auto revision = parse_hub_revision(text)) {
    check(is_hex(revision->commit, 40));
    std::vector<std::string> names;
    for (const RemoteFile& file : revision->files) {
      check(is_safe_relative(file.name));
      names.push_back(file.name);
      for (const std::string& part : parts_of(file.name)) check(is_safe_relative(part));
    }
    const auto chosen = choose_gguf(names, "", "fuzz");
    check(!chosen || std::find(names.begin(), names.end(), *chosen) != names.end());
  }
  if (const auto source = parse_source(text)) check(is_hex(source->sha256, 64));
  for (const bool json : {false, true}) {
    const auto files = parse_package_page(text, json, "https://example.org/simple/x/");
    if (files) choose_wheel(*files, "x", "1.0");
  }
}

void names(std::string_view text) {
  if (const auto name = parse_ollama_name(text)) {
    for (const std::string& part : {name->host, name->space, name->model, name->tag}) {
      check(part != "." && part != ".." && part.find('/') == std::string::npos);
    }
    check(to_text(*parse_ollama_name(to_text(*name))) == to_text(*name));
  }
  if (const auto name = parse_hub_name(text)) {
    check(name->org.find('/') == std::string::npos && name->repo.find('/') == std::string::npos);
    check(name->revision.empty() || is_safe_relative(name->revision));
    check(to_text(*name) == text);
  }
  ContentRange range;
  parse_content_range(text, &range);
  const std::string copy(text);
  check(copy.find('@') == std::string::npos || shown_url(copy).find('?') == std::string::npos);
  if (const auto next = next_address("https://example.org/x", copy)) {
    check(next->starts_with("https:"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  documents(text);
  constexpr size_t kLongestName = 2000;
  if (size <= kLongestName) names(text);
  constexpr uint64_t kLimit = 1 << 20;
  uint64_t written = 0;
  const auto sink = [&written](std::span<const std::byte> part) {
    written += part.size();
    return culet::Result<void>();
  };
  static_cast<void>(extract_member(std::as_bytes(std::span(data, size)), "a/b", kLimit, sink));
  check(written <= kLimit);
  return 0;
}
