// window(w): row p sees the keys s with p - s < w.
//
// The next row after `length` committed ones is row `length`; it needs the rows from length - w
// + 1. A rewind by up to `reserve` rows must still find its own window, so that many more rows
// stay.
#include "base/check.h"
#include "cache/block_cache.h"

#include <algorithm>

namespace culet::cache {
namespace {

class WindowCache final : public BlockCache {
 public:
  WindowCache(const KvShape& shape, int64_t window, int64_t reserve)
      : BlockCache(shape), window_(window), reserve_(reserve) {
    CULET_CHECK(window > 0 && reserve >= 0);
  }
  Visibility visibility() const override { return {.pinned_end = 0, .window = window_}; }

 protected:
  Position first_visible(Position p) const override {
    return std::max<Position>(0, p - window_ + 1);
  }
  Position first_needed(Position length) const override {
    return first_visible(std::max<Position>(0, length - reserve_));
  }
  bool can_rewind(Position length, Position oldest) const override {
    return oldest <= first_visible(length);
  }

 private:
  int64_t window_, reserve_;
};

}  // namespace

std::unique_ptr<LayerCache> make_window(KvShape shape, int64_t window, int64_t rewind_reserve) {
  return std::make_unique<WindowCache>(shape, window, rewind_reserve);
}

}  // namespace culet::cache
