// The weights of a published model: one safetensors file, or several with an index.
#pragma once

#include "culet/result.h"
#include "format/safetensors.h"

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace culet::convert {

class Checkpoint {
 public:
  // Opens what the folder has: the files of its index, else model.safetensors, else every file of
  // safetensors. Its tensors get names that begin so. Errors: kNotFound (no safetensors, or a file
  // of the index is not there), kCorrupt (a tensor twice, or not there though the index says so),
  // kUnsupported (an index and another model.safetensors).
  Result<void> add_folder(const std::string& folder, const std::string& prefix);

  const format::SafeTensor* find(std::string_view name) const;  // nullptr: absent
  // By name.
  const std::map<std::string, const format::SafeTensor*, std::less<>>& tensors() const {
    return tensors_;
  }
  // Files of safetensors in the folder that are no part of the model.
  const std::vector<std::string>& unread() const { return unread_; }
  uint64_t bytes() const;                  // of all tensors
  std::vector<std::string> paths() const;  // of the files
  // Puts another name in the place of each: rename(name) gives it.
  template <class F>
  Result<void> rename(F&& rename);
  // Tells the kernel that these bytes will not be read again soon.
  void release(const format::SafeTensor& tensor) const;

 private:
  Result<void> add(const std::string& path, const std::string& prefix);
  Result<void> insert(std::string name, const format::SafeTensor* tensor);

  std::deque<format::SafetensorsFile> files_;  // pointers into them stay
  std::map<std::string, const format::SafeTensor*, std::less<>> tensors_;
  std::vector<std::string> unread_;
};

template <class F>
Result<void> Checkpoint::rename(F&& rename) {
  auto before = std::move(tensors_);
  tensors_.clear();
  for (auto& [name, tensor] : before) CULET_TRY_VOID(insert(rename(name), tensor));
  return {};
}

}  // namespace culet::convert
