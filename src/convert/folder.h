// What a model is published in: a folder of JSON files, weights and a tokenizer.
#pragma once

#include "convert/checkpoint.h"
#include "culet/result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace culet::convert {

// A configuration file of the folder that was read: all of its members must be accounted for.
struct ModuleFile {
  std::string file;    // in the folder: "1_Pooling/config.json"
  std::string prefix;  // of its members in family files: "pooling."
  nlohmann::ordered_json json;
};

struct Folder {
  std::string path, name;             // name: of the folder, without what leads to it
  std::vector<std::string> files;     // that are read if they are there; without weights
  nlohmann::ordered_json config;      // config.json
  nlohmann::ordered_json tokenizer;   // tokenizer.json, or null
  nlohmann::ordered_json settings;    // tokenizer_config.json, or null
  nlohmann::ordered_json generation;  // generation_config.json, or null
  nlohmann::ordered_json pooling;     // of a sentence encoder (modules.json), or null
  nlohmann::ordered_json dense;       // an array: its dense layers' settings; or null
  std::string pooling_file;           // "1_Pooling/config.json"
  std::vector<std::string> dense_files;
  std::vector<ModuleFile> modules;           // the other files of a sentence encoder
  std::string sentencepiece, chat_template;  // tokenizer.model, chat_template.jinja; or ""
  Checkpoint checkpoint;                     // with the dense layers': PATH.linear.weight

  // "architectures" of config.json. Error: kCorrupt where there is none, or several.
  Result<std::string> model_class() const;
};

// Errors: kNotFound (no folder, no config.json, no weights), kCorrupt (JSON that is none),
// kUnsupported (an adapter, quantized weights, modules of a sentence encoder that are not known),
// and those of Checkpoint::add_folder.
Result<Folder> open_folder(const std::string& path);

}  // namespace culet::convert
