// The module online_softmax.ladder._rungs: run(name, logits, result, target, loss) for C-contiguous arrays of one dtype.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>

#include "rung.h"

namespace nb = nanobind;
using namespace online_softmax::ladder;

#define ONLINE_SOFTMAX_RUNGS(X) X(unsafe) X(naive) X(three_pass) X(online_element) X(online) X(loss) X(fused)

namespace online_softmax::ladder {
#define DECLARE(NAME, ISA)              \
    void NAME##_##ISA(const Matrix<float>&); \
    void NAME##_##ISA(const Matrix<double>&);
#define DECLARE_BASELINE(NAME) DECLARE(NAME, baseline)
ONLINE_SOFTMAX_RUNGS(DECLARE_BASELINE)
#if defined(ONLINE_SOFTMAX_X86_64)
#define DECLARE_X86_64(NAME) DECLARE(NAME, avx2) DECLARE(NAME, avx512)
ONLINE_SOFTMAX_RUNGS(DECLARE_X86_64)
#endif
}  // namespace online_softmax::ladder

namespace {

const char* instruction_set() {
#if defined(ONLINE_SOFTMAX_X86_64)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512) return "avx512";
    if (avx2) return "avx2";
#endif
    return "baseline";
}

template <class T>
using Rung = void (*)(const Matrix<T>&);

template <class T>
Rung<T> find(const std::string& name) {
    static const std::string best = instruction_set();
#if defined(ONLINE_SOFTMAX_X86_64)
#define FIND(NAME)                                            \
    if (name == #NAME) {                                      \
        if (best == "avx512") return &NAME##_avx512;          \
        if (best == "avx2") return &NAME##_avx2;              \
        return &NAME##_baseline;                              \
    }
#else
#define FIND(NAME) \
    if (name == #NAME) return &NAME##_baseline;
#endif
    ONLINE_SOFTMAX_RUNGS(FIND)
    throw std::invalid_argument("no rung is called " + name);
}

template <class T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

template <class T>
void run(const char* name, Array<const T> logits, Array<T> result, Array<const Index> target, Array<T> loss) {
    if (logits.ndim() != 2 || result.ndim() != 2 || logits.shape(0) != result.shape(0) ||
        logits.shape(1) != result.shape(1) || target.size() != logits.shape(0) || loss.size() != logits.shape(0)) {
        throw std::invalid_argument("logits and result are (rows, columns), target and loss (rows,)");
    }
    const Matrix<T> matrix{logits.data(), target.data(), result.data(), loss.data(),
                           static_cast<Index>(logits.shape(0)), static_cast<Index>(logits.shape(1))};
    const Rung<T> rung = find<T>(name);
    nb::gil_scoped_release release;
    rung(matrix);
}

// The merge of state.h itself, for the tests of its laws.
nb::tuple merge_pairs(double m_a, double s_a, double m_b, double s_b) {
    const auto merged = online_softmax::merge<double>({m_a, s_a}, {m_b, s_b}, online_softmax::Exp());
    return nb::make_tuple(merged.m, merged.s);
}

}  // namespace

NB_MODULE(_rungs, module) {
    module.def("instruction_set", &instruction_set);
    module.def("merge", &merge_pairs);
    module.def("run", &run<float>);
    module.def("run", &run<double>);
}
