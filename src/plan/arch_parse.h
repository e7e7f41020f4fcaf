// Architecture text -> ArchFile, includes flattened.
#pragma once

#include "culet/result.h"
#include "plan/arch_ast.h"
#include "plan/compile.h"

namespace culet::plan {

// Parses `arch` and what it includes (bare names, looked up in the library). A let, cache, state or
// section replaces the included one of the same name; requires and ignores add up.
Result<ArchFile> parse_arch(const ArchLibrary& library, const ArchText& arch);

// Only the names on the `arch` line; used to index a folder of files.
Result<std::vector<std::string>> parse_arch_names(const ArchText& arch);

// One file of `files`, nothing included; *include is the name on its include line, or "".
Result<ArchFile> parse_file(const std::vector<SourceFile>& files, int file, std::string* include);
// Only the names on the arch line of files[0].
Result<std::vector<std::string>> parse_file_names(const std::vector<SourceFile>& files);

// The flattened text whose line numbers Op::line uses, and whose sha256 is reported.
std::string flattened_text(const ArchFile& arch);

}  // namespace culet::plan
