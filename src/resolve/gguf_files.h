// Which of a repository's files is meant: by the quantization in its name.
#pragma once

#include "culet/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace culet::resolve {

// Whether `quant` is a whole token of the file's name, in any case: between "-", "." or the ends;
// a quantization (Q4_K_M, IQ4_XS, F16, ...) may also follow "_". "Q4_K" is no token of "Q4_K_M".
bool has_quant(std::string_view file, std::string_view quant);

// The name's own quantization token as written, or "".
std::string quant_in_name(std::string_view file);

// The files of the model that `first` begins: itself, or all parts NAME-0000K-of-0000N.gguf in
// order. Empty when a name claims more than 1000 parts.
std::vector<std::string> parts_of(const std::string& first);

// Of paths relative to the repository, one: projectors (mmproj), importance matrices (imatrix) and
// parts after the first are never candidates. With a quant (or the exact file name) the one file
// that has it; without, the only candidate or else the one with Q4_K_M. kNotFound: no candidate;
// kInvalidArgument: several, listed. `what` names the repository in messages.
Result<std::string> choose_gguf(const std::vector<std::string>& files, const std::string& quant,
                                const std::string& what);

}  // namespace culet::resolve
