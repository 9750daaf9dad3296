// Arrays as they come from Python: anything with the buffer protocol, or a tensor's (address, shape, strides, dtype).
#pragma once

#include <nanobind/nanobind.h>

#include "layout.h"

namespace online_softmax {

class Argument {
public:
    Argument() = default;
    // None gives an absent argument.  Throws when the object is no array, or of a dtype the kernels do not know.
    explicit Argument(nanobind::handle object, bool writable = false);
    ~Argument();
    Argument(const Argument&) = delete;
    Argument& operator=(const Argument&) = delete;

    explicit operator bool() const { return present_; }
    const Array& array() const { return array_; }
    char* data() const { return present_ ? array_.data : nullptr; }

private:
    void from_tensor(nanobind::handle tuple);
    void from_buffer(nanobind::handle object, bool writable);

    bool present_ = false, holds_buffer_ = false;
    Py_buffer buffer_;
    Array array_;
};

}  // namespace online_softmax
