// Which tokens end an answer, beyond those that a file names by id.
#pragma once

#include "text/token_table.h"

#include <vector>

namespace culet::text {

// By token: true where its text and kind say that nothing sensible follows it.
std::vector<bool> ends_generation(const TokenTable& table);

}  // namespace culet::text
