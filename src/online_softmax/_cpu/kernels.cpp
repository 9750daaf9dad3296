// The table of one instruction set; compiled once for each, like the kernels it names.
#include "kernels.h"

#define ONLINE_SOFTMAX_STRING_(x) #x
#define ONLINE_SOFTMAX_STRING(x) ONLINE_SOFTMAX_STRING_(x)
#define ONLINE_SOFTMAX_JOIN_(a, b) a##b
#define ONLINE_SOFTMAX_JOIN(a, b) ONLINE_SOFTMAX_JOIN_(a, b)

namespace online_softmax {
namespace ONLINE_SOFTMAX_ISA {

void softmax_forward(const Lines&, Softmax, int threads);
void softmax_backward(const Lines&, Softmax, int threads);
void logsumexp_backward(const Lines&, int threads);
void cross_entropy_forward(const CrossEntropyCall&, CrossEntropyForward&);
void cross_entropy_backward(const CrossEntropyCall&, const CrossEntropyBackward&);
void rescale(const Lines&, double factor, int threads);

}  // namespace ONLINE_SOFTMAX_ISA

const Kernels ONLINE_SOFTMAX_JOIN(ONLINE_SOFTMAX_ISA, _kernels) = {
    ONLINE_SOFTMAX_STRING(ONLINE_SOFTMAX_ISA),
    ONLINE_SOFTMAX_ISA::softmax_forward,
    ONLINE_SOFTMAX_ISA::softmax_backward,
    ONLINE_SOFTMAX_ISA::logsumexp_backward,
    ONLINE_SOFTMAX_ISA::cross_entropy_forward,
    ONLINE_SOFTMAX_ISA::cross_entropy_backward,
    ONLINE_SOFTMAX_ISA::rescale,
};

}  // namespace online_softmax
