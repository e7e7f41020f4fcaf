// Integer matrix products with the dot product instructions of ARMv8.2 (sdot): exact int32 dots of
// signed weights, four k a lane. The other entries are those of arm_neon.cpp.
//
// Nothing here may have external or weak linkage but add_dotprod: this file is compiled for one CPU
// family and the linker must not pick its code for others.
#include "kernels/arm_neon_lanes.h"
#include "kernels/levels.h"
// After the vectors that they are written in.
#include "kernels/arm_dotprod_dots.h"

namespace culet::kernels {
namespace {

constexpr int max_rows(const PackedLayout& l) { return halves(l) ? 3 : 4; }
CULET_INLINE int64_t tile_rows(int64_t rows, int64_t max) { return even_share(rows, max); }

template <int kIndex, int R, int P>
using Dots = DotprodDots<kIndex, R, P>;

}  // namespace
}  // namespace culet::kernels

#include "kernels/lane_matmul_q.h"

namespace culet::kernels {

void add_dotprod(Kernels* table) { add_matmul_q<0>(table); }

}  // namespace culet::kernels
