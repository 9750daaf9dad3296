#include "cpu.h"
namespace online_softmax {
void ONLINE_SOFTMAX_ISA::softmax_forward_columns(const Lines& lines, Softmax operation, int threads) {
    Lines l = lines; l.columns = false; softmax_forward(l, operation, threads);
}
void ONLINE_SOFTMAX_ISA::softmax_backward_columns(const Lines& lines, Softmax operation, int threads) {
    Lines l = lines; l.columns = false; softmax_backward(l, operation, threads);
}
}
