// SPDX-License-Identifier: Apache-2.0
#include "base/checked.h"
#include "format/encode/encode_rows.h"
#include "format/format.h"
#include "guard.h"
#include "structs.h"

using namespace minim;
using namespace minim::capi;

size_t minim_format_count(void) {
    return all_formats().size();
}

minim_status minim_format_get_info(size_t index, minim_format_info* out, minim_error* err) {
    return guard(err, [&] {
        if (index >= all_formats().size())
            fail(Status::invalid, "format {} of {}", index, all_formats().size());
        const FormatTraits& format = all_formats()[index];
        minim_format_info info{};
        info.gguf_type = static_cast<int32_t>(format.gguf_type);
        info.block_elems = format.block_elems;
        info.block_bytes = format.block_bytes;
        info.row_header_bytes = format.row_header_bytes;
        info.is_weight = format.decode_row != nullptr ? 1 : 0;
        info.name = format.name.data();
        result_to(out, "minim_format_info", info);
    });
}

minim_status minim_format_decode(const char* name, const void* row, size_t row_length, size_t count,
                                 float* out, minim_error* err) {
    return guard(err, [&] {
        const auto format = format_from_name(&required(name, "name"));
        if (!format) fail(Status::unsupported, "there is no format '{}'", name);
        const FormatTraits& traits_of = traits(*format);
        if (traits_of.decode_row == nullptr)
            fail(Status::unsupported, "format {} is not used for weights", name);
        uint64_t bytes = 0;
        if (!row_bytes(*format, count, bytes)) {
            fail(Status::invalid, "{} elements are not whole blocks of {} ({} each)", count, name,
                 traits_of.block_elems);
        }
        if (bytes != row_length) {
            fail(Status::invalid, "a row of {} elements in {} has {} bytes, not {}", count, name, bytes,
                 row_length);
        }
        if (count == 0) return;
        const auto& bytes_of_row = required(static_cast<const std::byte*>(row), "row");
        traits_of.decode_row(&bytes_of_row, static_cast<int64_t>(count), &required(out, "out"));
    });
}

minim_status minim_format_encode(const char* name, const float* x, size_t n_rows, size_t columns,
                                 const float* importance, void* out, size_t capacity, minim_error* err) {
    return guard(err, [&] {
        const auto format = format_from_name(&required(name, "name"));
        if (!format) fail(Status::unsupported, "there is no format '{}'", name);
        if (!can_encode(*format)) fail(Status::unsupported, "there is no encoder of {}", name);
        uint64_t row_size = 0;
        if (!row_bytes(*format, columns, row_size)) {
            fail(Status::invalid, "{} columns are not whole blocks of {} ({} each)", columns, name,
                 traits(*format).block_elems);
        }
        uint64_t bytes = 0;
        uint64_t count = 0;
        if (!checked_mul(n_rows, row_size, bytes) || !checked_mul(n_rows, columns, count) ||
            bytes > capacity) {
            fail(Status::invalid,
                 "{} rows of {} columns in {} have {} bytes each, more than the capacity of {}", n_rows,
                 columns, name, row_size, capacity);
        }
        if (count == 0) return;
        EncodeRows job{};
        job.format = *format;
        job.x = &required(x, "x");
        job.n_rows = static_cast<int64_t>(n_rows);
        job.n_columns = static_cast<int64_t>(columns);
        job.importance = importance;
        job.out = &required(static_cast<std::byte*>(out), "out");
        encode_rows(job);
    });
}
