// Which value a name stands for. Values of the model block are visible in the layers; a layer may
// replace those that exist outside (that is how x flows), everything else it makes is gone when the
// layer ends.
#pragma once

#include "culet/result.h"
#include "plan/graph_writer.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace culet::plan {

class ValueScope {
 public:
  explicit ValueScope(GraphWriter& writer) : writer_(writer) {}

  bool has(const std::string& name) const { return names_.count(name) != 0; }
  ValueId read(const std::string& name);  // kNone: there is no such value
  std::vector<std::string> names() const;

  // The name stands for the value from here on. Error: nothing read what it stood for.
  Result<void> assign(const std::string& name, ValueId value, SourceLocation p);
  // For values that need no reader.
  void define(const std::string& name, ValueId value, SourceLocation p);

  void begin_layer() { made_here_.clear(); }
  Result<void> end_layer();  // error: a value of the layer that nothing read
  Result<void> end() const;  // likewise, of the model

 private:
  struct Made {
    ValueId value;
    SourceLocation location;
    bool read = false;
  };
  void set(const std::string& name, Made made);
  Result<void> check_read(const std::string& name, const Made& made) const;

  GraphWriter& writer_;
  std::map<std::string, Made> names_;
  std::vector<std::string> made_here_;  // names that end with this layer
};

}  // namespace culet::plan
