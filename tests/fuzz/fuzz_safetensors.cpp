// SPDX-License-Identifier: Apache-2.0
// The safetensors header: any bytes are either refused with an Error, or are valid JSON whose tensors tile
// the data.
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors_header.h"
#include "json_oracle.h"
#include "require.h"

using minim::checkpoint::ByteSource;
using minim::checkpoint::SafetensorsHeader;
using minim::checkpoint::Tensor;
using minim::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::span<const uint8_t> bytes(data, size);
    try {
        const SafetensorsHeader header =
            read_safetensors_header(ByteSource("fuzz.safetensors", std::as_bytes(bytes)));
        uint64_t covered = 0;
        uint64_t data_start = size;
        for (const Tensor& tensor : header.tensors) {
            require(tensor.offset <= size && tensor.bytes <= size - tensor.offset,
                    "a tensor lies inside the file");
            for (const int64_t dim : tensor.shape) require(dim >= 0, "a dimension is not negative");
            covered += tensor.bytes;
            data_start = std::min(data_start, tensor.offset);
        }
        require(covered == size - data_start, "the tensors cover the data");
        const std::string_view text(reinterpret_cast<const char*>(data), data_start);
        minim::fuzz::require_json(text.substr(8));
    } catch (const minim::Error& error) {
        require(error.reason() != minim::Reason::none, "a bad file has a reason");
        require(error.status() == minim::Status::format, "a bad file is a format error");
    }
    return 0;
}
