// full: a row sees every key up to itself, nothing is dropped, every rewind works.
#include "cache/block_cache.h"

namespace culet::cache {
namespace {

class FullCache final : public BlockCache {
 public:
  using BlockCache::BlockCache;
  Visibility visibility() const override { return {}; }

 protected:
  Position first_visible(Position) const override { return 0; }
  Position first_needed(Position) const override { return 0; }
  bool can_rewind(Position, Position) const override { return true; }
};

}  // namespace

std::unique_ptr<LayerCache> make_full(KvShape shape) { return std::make_unique<FullCache>(shape); }

}  // namespace culet::cache
