// SPDX-License-Identifier: Apache-2.0
// The GGUF header: any bytes are either refused with an Error, or describe tensors that lie inside the file,
// apart from each other, under unique names.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf_header.h"
#include "require.h"

using minim::checkpoint::ByteSource;
using minim::checkpoint::GgufHeader;
using minim::checkpoint::Metadata;
using minim::checkpoint::Tensor;
using minim::fuzz::require;

namespace {

void check_tensors(std::vector<Tensor> tensors, uint64_t file_bytes) {
    for (const Tensor& tensor : tensors) {
        require(tensor.format.has_value(), "a tensor has a format");
        require(!tensor.name.empty(), "a tensor has a name");
        require(tensor.offset <= file_bytes || tensor.bytes == 0, "a tensor begins inside the file");
        require(tensor.bytes == 0 || tensor.bytes <= file_bytes - tensor.offset,
                "a tensor ends inside the file");
        require(tensor.shape.size() <= 4, "a tensor has at most four dimensions");
        for (const int64_t dim : tensor.shape) require(dim >= 0, "a dimension is not negative");
    }
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.bytes == 0; });
    std::sort(tensors.begin(), tensors.end(),
              [](const Tensor& a, const Tensor& b) { return a.offset < b.offset; });
    for (size_t i = 1; i < tensors.size(); ++i) {
        require(tensors[i - 1].offset + tensors[i - 1].bytes <= tensors[i].offset, "tensors do not overlap");
    }
}

void check_metadata(const Metadata& metadata) {
    for (const Metadata::Entry& entry : metadata.entries()) {
        require(metadata.find(entry.key) == &entry.value, "each key finds its own value");
        to_text(entry.value, 1000);
        try {
            metadata.unsigned_integer(entry.key);
            metadata.strings(entry.key);
        } catch (const minim::Error&) {
            // The value has another type.
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const ByteSource source("fuzz.gguf", std::as_bytes(std::span(data, size)));
    try {
        const GgufHeader header = read_gguf_header(source);
        check_tensors(header.tensors, size);
        check_metadata(header.metadata);
    } catch (const minim::Error& error) {
        require(error.reason() != minim::Reason::none, "a bad file has a reason");
        require(error.status() == minim::Status::format, "a bad file is a format error");
    }
    return 0;
}
