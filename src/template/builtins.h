// The tables of filters.def: what a template can call by name.
#pragma once

#include "template/runtime.h"

#include <string_view>

namespace culet::chat {

// nullptr: there is none of that name.
const NativeEntry* find_filter(std::string_view name);
const NativeEntry* find_test(std::string_view name);
const NativeEntry* find_function(std::string_view name);
const NativeEntry* find_string_method(std::string_view name);
const NativeEntry* find_dict_method(std::string_view name);
const NativeEntry* find_list_method(std::string_view name);
const NativeEntry* find_tuple_method(std::string_view name);
const NativeEntry* find_loop_method(std::string_view name);

}  // namespace culet::chat
