#include <gtest/gtest.h>
#include "kernels/kernels.h"
TEST(Kernels, Select) { culet::kernels::Kernels k; EXPECT_EQ(culet::kernels::select_kernels(nullptr, &k), nullptr); }
