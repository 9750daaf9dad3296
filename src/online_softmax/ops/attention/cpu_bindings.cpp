// The attention kernels as Python calls them, with arrays made contiguous and of the right dtype there.
#include <nanobind/nanobind.h>

#include <vector>

#include "../../_cpu/arguments.h"
#include "../../_cpu/instruction_sets.h"

namespace nb = nanobind;

namespace online_softmax {
namespace {

constexpr std::int64_t elements_to_release = 1 << 13;

template <class Work>
void run(std::int64_t elements, Work work) {
    if (elements < elements_to_release) return work();
    nb::gil_scoped_release release;
    work();
}

AttentionTile make_tile(const Argument& scores, std::int64_t keys, std::int64_t period, nb::handle first, int threads) {
    const Array& x = scores.array();
    std::int64_t elements = 1;
    for (int d = 0; d < x.dimensions; ++d) elements *= x.shape[d];
    const bool causal = !first.is_none();
    return {x.dtype == DType::float64, causal, keys ? elements / keys : 0, keys, period,
            causal ? nb::cast<std::int64_t>(first) : 0, x.data, threads};
}

void attention_update(nb::handle scores, std::int64_t keys, std::int64_t period, nb::handle first, nb::handle m, nb::handle s,
                      nb::handle v, int threads) {
    const Argument x(scores, true), m_(m, true), s_(s, true), v_(v, true);
    const AttentionTile tile = make_tile(x, keys, period, first, threads);
    const AttentionState state{m_.data(), s_.data(), v_.data(), v_.array().shape[v_.array().dimensions - 1]};
    run(tile.rows * keys, [&] { kernels().attention_update(tile, state); });
}

void attention_gradient(nb::handle scores, std::int64_t keys, std::int64_t period, nb::handle first, nb::handle grad_weights,
                        nb::handle lse, nb::handle lse_low, nb::handle delta, int threads) {
    const Argument x(scores, true), d(grad_weights, true), l(lse), low(lse_low), de(delta);
    const AttentionTile tile = make_tile(x, keys, period, first, threads);
    const AttentionGradient in{d.data(), l.data(), low.data(), de.data()};
    run(tile.rows * keys, [&] { kernels().attention_gradient(tile, in); });
}

// Arrays of Python as the kernels' pointers; None is a null pointer.
class Pointers {
public:
    Pointers(nb::list arrays, bool writable) : arguments_(new Argument*[nb::len(arrays)]) {
        for (nb::handle each : arrays) {
            arguments_[count_] = new Argument(each, writable);
            ++count_;
            pointers_.push_back(arguments_[count_ - 1]->data());
        }
    }
    ~Pointers() {
        for (std::size_t i = 0; i < count_; ++i) delete arguments_[i];
        delete[] arguments_;
    }
    Pointers(const Pointers&) = delete;
    Pointers& operator=(const Pointers&) = delete;
    char* const* data() const { return pointers_.data(); }
    std::size_t count() const { return count_; }

private:
    std::size_t count_ = 0;
    Argument** arguments_;
    std::vector<char*> pointers_;
};

Partials make_partials(const Pointers& outs, const Pointers& lses, const Array& out, const Array& lse, int threads) {
    std::int64_t rows = 1;
    for (int d = 0; d + 1 < out.dimensions; ++d) rows *= out.shape[d];
    return {out.dtype,
            lse.dtype == DType::float64,
            static_cast<std::int64_t>(outs.count()),
            rows,
            out.shape[out.dimensions - 1],
            const_cast<const char* const*>(outs.data()),
            const_cast<const char* const*>(lses.data()),
            threads};
}

void merge_partials(nb::list outs, nb::list lses, nb::handle out, nb::handle lse, int threads) {
    const Pointers o(outs, false), l(lses, false);
    const Argument out_(out, true), lse_(lse, true);
    const Partials partials = make_partials(o, l, out_.array(), lse_.array(), threads);
    run(partials.rows * partials.size * partials.count,
        [&] { kernels().merge_partials(partials, out_.data(), lse_.data()); });
}

void merge_partials_backward(nb::handle grad_out, nb::handle grad_lse, nb::list outs, nb::list lses, nb::handle out,
                             nb::handle lse, nb::list grad_outs, nb::list grad_lses, int threads) {
    const Pointers o(outs, false), l(lses, false), go(grad_outs, true), gl(grad_lses, true);
    const Argument grad(grad_out), along(grad_lse), out_(out), lse_(lse);
    const Partials partials = make_partials(o, l, out_.array(), lse_.array(), threads);
    const MergeGradient in{grad.data(), along.data(), out_.data(), go.data(), gl.data()};
    run(partials.rows * partials.size * partials.count, [&] { kernels().merge_partials_backward(partials, in); });
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention_update", attention_update, nb::arg("scores"), nb::arg("keys"), nb::arg("period"),
          nb::arg("first").none(), nb::arg("m"), nb::arg("s"), nb::arg("v"), nb::arg("threads"));
    m.def("attention_gradient", attention_gradient, nb::arg("scores"), nb::arg("keys"), nb::arg("period"),
          nb::arg("first").none(), nb::arg("grad_weights"), nb::arg("lse"), nb::arg("lse_low"), nb::arg("delta"),
          nb::arg("threads"));
    m.def("merge_partials", merge_partials);
    m.def("merge_partials_backward", merge_partials_backward, nb::arg("grad_out"), nb::arg("grad_lse").none(), nb::arg("outs"),
          nb::arg("lses"), nb::arg("out"), nb::arg("lse"), nb::arg("grad_outs"), nb::arg("grad_lses"), nb::arg("threads"));
}

}  // namespace online_softmax
