// The input's rows for the weight's gradient, with zeros for those that ignore_index leaves out, whatever they hold.
#include "../../_cuda/numbers.cuh"

using namespace online_softmax;

using Label = LABEL;
constexpr int kThreads = 256, kRows = 4;  // a block's rows, all on their way before the first is written

// `words`: of 16 bytes, in a row.
extern "C" __global__ void __launch_bounds__(kThreads)
without_ignored(const uint4* x, uint4* out, int64 rows, int64 words, const Label* labels, int64 stride,
                int64 ignore_index) {
    const int64 first = int64(blockIdx.x) * kRows;
    bool ignored[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
        ignored[i] = first + i < rows && int64(labels[(first + i) * stride]) == ignore_index;
    for (int64 word = threadIdx.x; word < words; word += kThreads) {
        uint4 found[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
            if (first + i < rows) found[i] = x[(first + i) * words + word];
#pragma unroll
        for (int i = 0; i < kRows; ++i)
            if (first + i < rows) out[(first + i) * words + word] = ignored[i] ? make_uint4(0, 0, 0, 0) : found[i];
    }
}
