#include "arguments.h"

#include <stdexcept>

namespace online_softmax {
namespace {

namespace nb = nanobind;

DType dtype_of(const Py_buffer& buffer) {
    const char* format = buffer.format;
    if (format[0] == '@' || format[0] == '=' || format[0] == '^') ++format;  // NumPy marks elements off their alignment
    switch (format[0] != '\0' && format[1] == '\0' ? format[0] : '\0') {
        case 'e': return DType::float16;
        case 'f': return DType::float32;
        case 'd': return DType::float64;
        case 'i':
        case 'l':
        case 'q':
            if (buffer.itemsize == 4) return DType::int32;
            if (buffer.itemsize == 8) return DType::int64;
    }
    throw nb::type_error("the CPU kernels take float16, bfloat16, float32 and float64 arrays of native byte order");
}

std::int64_t integer(PyObject* object) {
    const long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

}  // namespace

Argument::Argument(nb::handle object, bool writable) {
    if (object.is_none()) return;
    if (PyTuple_Check(object.ptr())) {
        from_tensor(object);
    } else {
        from_buffer(object, writable);
    }
    present_ = true;
}

Argument::~Argument() {
    if (holds_buffer_) PyBuffer_Release(&buffer_);
}

void Argument::from_tensor(nb::handle tuple) {
    if (PyTuple_Size(tuple.ptr()) != 4) throw nb::type_error("a tensor is given as (address, shape, strides, dtype)");
    PyObject* const shape = PyTuple_GetItem(tuple.ptr(), 1);
    PyObject* const strides = PyTuple_GetItem(tuple.ptr(), 2);
    array_.data = reinterpret_cast<char*>(integer(PyTuple_GetItem(tuple.ptr(), 0)));
    array_.dtype = static_cast<DType>(integer(PyTuple_GetItem(tuple.ptr(), 3)));
    const Py_ssize_t dimensions = PyTuple_Size(shape);
    if (dimensions > max_dimensions) throw nb::value_error("more than 64 dimensions");
    array_.dimensions = static_cast<int>(dimensions);
    for (Py_ssize_t d = 0; d < dimensions; ++d) {
        array_.shape[d] = integer(PyTuple_GetItem(shape, d));
        array_.strides[d] = integer(PyTuple_GetItem(strides, d)) * size_of(array_.dtype);
    }
}

void Argument::from_buffer(nb::handle object, bool writable) {
    const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
    holds_buffer_ = true;
    try {
        array_.dtype = dtype_of(buffer_);
    } catch (...) {
        PyBuffer_Release(&buffer_);  // the destructor does not run when a constructor throws
        throw;
    }
    array_.data = static_cast<char*>(buffer_.buf);
    array_.dimensions = buffer_.ndim;
    for (int d = 0; d < buffer_.ndim; ++d) {
        array_.shape[d] = buffer_.shape[d];
        array_.strides[d] = buffer_.strides[d];
    }
}

}  // namespace online_softmax
