// The module online_softmax._cpu._native.  Functions give False when an array cannot be read as it lies (an element off
// a multiple of its size) and the caller should pass a copy.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "arguments.h"
#include "instruction_sets.h"
#include "layout.h"
#include "memory.h"
#include "threads.h"

namespace nb = nanobind;
using namespace online_softmax;

namespace online_softmax {
void bind_attention(nb::module_& m);  // ops/attention/cpu_bindings.cpp
}

namespace {

// Below this, giving up the interpreter's lock and taking it back costs more than the work.
constexpr std::int64_t elements_to_release = 1 << 13;

template <class Work>
void run(const Lines& lines, Work work) {
    if (lines.count * lines.length < elements_to_release) return work();
    nb::gil_scoped_release release;
    work();
}

bool softmax_forward(int operation, nb::handle x, nb::handle result, int axis, int threads) {
    const Argument in(x), out(result, true);
    const Array* arrays[] = {&in.array(), &out.array()};
    Lines lines;
    if (!make_lines(arrays, 2, axis, lines)) return false;
    run(lines, [&] { kernels().softmax_forward(lines, static_cast<Softmax>(operation), threads); });
    return true;
}

bool softmax_backward(int operation, nb::handle grad, nb::handle y, nb::handle result, int axis, int threads) {
    const Argument g(grad), in(y), out(result, true);
    const Array* arrays[] = {&g.array(), &in.array(), &out.array()};
    Lines lines;
    if (!make_lines(arrays, 3, axis, lines)) return false;
    run(lines, [&] { kernels().softmax_backward(lines, static_cast<Softmax>(operation), threads); });
    return true;
}

bool logsumexp_backward(nb::handle x, nb::handle grad, nb::handle lse, nb::handle result, int axis, int threads) {
    const Argument in(x), g(grad), l(lse), out(result, true);
    const Array* arrays[] = {&in.array(), &g.array(), &l.array(), &out.array()};
    Lines lines;
    if (!make_lines(arrays, 4, axis, lines)) return false;
    run(lines, [&] { kernels().logsumexp_backward(lines, threads); });
    return true;
}

bool rescale(nb::handle array, double factor, int threads) {
    const Argument a(array, true);
    const Array* arrays[] = {&a.array()};
    Lines lines;
    if (!make_lines(arrays, 1, a.array().dimensions - 1, lines)) return false;
    run(lines, [&] { kernels().rescale(lines, factor, threads); });
    return true;
}

// (ignore_index, label_smoothing, scale, softcap or 0, z_loss)

// Fills `call`; false when an array cannot be read as it lies.
bool make_call(const Argument& logits, const Argument& target, const Argument& weight, const Argument& gradient,
               nb::tuple options, int threads, CrossEntropyCall& call) {
    const Array& t = target.array();
    call.has_gradient = static_cast<bool>(gradient);
    call.has_probabilities = t.dtype < DType::int32;
    const Array* arrays[3] = {&logits.array()};
    int count = 1;
    if (call.has_gradient) arrays[count++] = &gradient.array();
    if (call.has_probabilities) arrays[count++] = &t;
    if (!make_lines(arrays, count, 1, call.lines)) return false;
    if (!call.has_probabilities) {
        call.targets = {t.data, size_of(t.dtype), t.strides[0], nb::cast<std::int64_t>(options[0])};
        if (reinterpret_cast<std::uintptr_t>(t.data) % size_of(t.dtype) || t.strides[0] % size_of(t.dtype)) return false;
    }
    call.weight = weight.data();
    call.options = {nb::cast<double>(options[1]), nb::cast<double>(options[2]), nb::cast<double>(options[3]),
                    nb::cast<double>(options[4])};
    call.threads = threads;
    return true;
}

bool cross_entropy_forward(nb::handle logits, nb::handle target, nb::handle weight, nb::handle gradient, nb::tuple options,
                           int reduction, nb::handle num_items, nb::handle loss, nb::handle lse, nb::handle lse_low,
                           nb::handle divisors, nb::handle z_loss, nb::handle predicted, nb::handle entropy, int threads) {
    const Argument x(logits), t(target), w(weight), g(gradient, true);
    const Argument loss_out(loss, true), lse_out(lse, true), low_out(lse_low, true), divisors_out(divisors, true),
        z_out(z_loss, true), predicted_out(predicted, true), entropy_out(entropy, true);
    CrossEntropyCall call;
    if (!make_call(x, t, w, g, options, threads, call)) return false;
    CrossEntropyForward out{};
    out.loss = loss_out.data();
    out.lse = lse_out.data();
    out.lse_low = low_out.data();
    out.z_loss = z_out.data();
    out.predicted = predicted_out.data();
    out.entropy = entropy_out.data();
    out.reduction = static_cast<Reduction>(reduction);
    out.has_num_items = !num_items.is_none();
    out.num_items = out.has_num_items ? nb::cast<double>(num_items) : 0.0;
    run(call.lines, [&] { kernels().cross_entropy_forward(call, out); });
    for (int i = 0; i < 2; ++i) {
        if (divisors_out.array().dtype == DType::float64) {
            reinterpret_cast<double*>(divisors_out.data())[i] = out.divisors[i];
        } else {
            reinterpret_cast<float*>(divisors_out.data())[i] = static_cast<float>(out.divisors[i]);
        }
    }
    return true;
}

double number(const Array& array, std::int64_t index) {
    const char* at = array.data + (array.dimensions > 0 ? index * array.strides[0] : 0);
    return array.dtype == DType::float64 ? *reinterpret_cast<const double*>(at) : *reinterpret_cast<const float*>(at);
}

Vector vector(const Argument& argument) {
    if (!argument) return {nullptr, 0};
    return {argument.data(), argument.array().dimensions > 0 ? argument.array().strides[0] : 0};
}

bool cross_entropy_backward(nb::handle logits, nb::handle target, nb::handle weight, nb::handle gradient, nb::tuple options,
                            nb::handle lse, nb::handle lse_low, nb::handle divisors, nb::handle grad_loss,
                            nb::handle grad_lse, int threads) {
    const Argument x(logits), t(target), w(weight), g(gradient, true);
    const Argument l(lse), low(lse_low), d(divisors), gl(grad_loss), ge(grad_lse);
    CrossEntropyCall call;
    if (!make_call(x, t, w, g, options, threads, call)) return false;
    const CrossEntropyBackward in{vector(l), vector(low), vector(gl), vector(ge), {number(d.array(), 0), number(d.array(), 1)}};
    run(call.lines, [&] { kernels().cross_entropy_backward(call, in); });
    return true;
}

// How the lines along an axis would be read: for tests, which must know that they reach each way.
const char* layout(nb::handle x, nb::handle result, int axis) {
    const Argument in(x), out(result);
    const Array* arrays[] = {&in.array(), &out.array()};
    Lines lines;
    if (!make_lines(arrays, 2, axis, lines)) return "copy";
    return lines.columns ? "columns" : rows_are_contiguous(lines) ? "rows" : "gathered rows";
}

// A fresh array of bytes, whose memory goes to a later one when it is freed.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> allocate(std::size_t size) {
    Memory* const memory = new Memory(take_memory(size));
    const nb::capsule owner(memory, [](void* owned) noexcept {
        give_memory(*static_cast<Memory*>(owned));
        delete static_cast<Memory*>(owned);
    });
    return {memory->address, {size}, owner};
}

nb::list instruction_sets() {
    nb::list names;
    for (const Kernels* const* k = available_kernels(); *k; ++k) names.append((*k)->name);
    return names;
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("softmax_forward", softmax_forward);
    m.def("softmax_backward", softmax_backward);
    m.def("logsumexp_backward", logsumexp_backward);
    m.def("cross_entropy_forward", cross_entropy_forward, nb::arg("logits"), nb::arg("target"), nb::arg("weight").none(),
          nb::arg("gradient").none(), nb::arg("options"), nb::arg("reduction"), nb::arg("num_items").none(), nb::arg("loss"),
          nb::arg("lse"), nb::arg("lse_low"), nb::arg("divisors"), nb::arg("z_loss").none(), nb::arg("predicted").none(),
          nb::arg("entropy").none(), nb::arg("threads"));
    m.def("cross_entropy_backward", cross_entropy_backward, nb::arg("logits"), nb::arg("target"), nb::arg("weight").none(),
          nb::arg("gradient"), nb::arg("options"), nb::arg("lse"), nb::arg("lse_low"), nb::arg("divisors"), nb::arg("grad_loss"),
          nb::arg("grad_lse").none(), nb::arg("threads"));
    bind_attention(m);
    m.def("rescale", rescale);
    m.def("allocate", allocate);
    m.def("kept_memory", kept_memory);
    m.def("kept_memory_limit", kept_memory_limit);
    m.def("limit_kept_memory", limit_kept_memory);
    m.def("layout", layout);
    m.def("shared_jobs", shared_jobs);
    m.def("team_jobs", team_jobs);
    m.def("use_team", [](std::uintptr_t address) { use_team(reinterpret_cast<Team>(address)); });
    m.def("uses_team", uses_team);
    m.def("instruction_sets", instruction_sets);
    m.def("instruction_set", [] { return kernels().name; });
    m.def("use_instruction_set", [](const char* name) { return use_kernels(name); });
}
