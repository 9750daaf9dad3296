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
void attention_update(const AttentionTile&, const AttentionState&);
void attention_gradient(const AttentionTile&, const AttentionGradient&);
void merge_partials(const Partials&, char* out, char* lse);
void merge_partials_backward(const Partials&, const MergeGradient&);

}  // namespace ONLINE_SOFTMAX_ISA

const Kernels ONLINE_SOFTMAX_JOIN(ONLINE_SOFTMAX_ISA, _kernels) = {
    ONLINE_SOFTMAX_STRING(ONLINE_SOFTMAX_ISA),
    ONLINE_SOFTMAX_ISA::softmax_forward,
    ONLINE_SOFTMAX_ISA::softmax_backward,
    ONLINE_SOFTMAX_ISA::logsumexp_backward,
    ONLINE_SOFTMAX_ISA::cross_entropy_forward,
    ONLINE_SOFTMAX_ISA::cross_entropy_backward,
    ONLINE_SOFTMAX_ISA::rescale,
    ONLINE_SOFTMAX_ISA::attention_update,
    ONLINE_SOFTMAX_ISA::attention_gradient,
    ONLINE_SOFTMAX_ISA::merge_partials,
    ONLINE_SOFTMAX_ISA::merge_partials_backward,
};

}  // namespace online_softmax
