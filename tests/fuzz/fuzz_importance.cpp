// SPDX-License-Identifier: Apache-2.0
// Files of importance data: any bytes are refused with an Error, or hold entries of positive size with finite values, which are
// the same after they are written and read again.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "checkpoint/importance_file.h"
#include "require.h"

using minim::Status;
using minim::checkpoint::ByteSource;
using minim::checkpoint::ImportanceData;
using minim::checkpoint::ImportanceEntry;
using minim::checkpoint::ImportanceForm;
using minim::fuzz::require;

namespace {

bool are_valid(std::span<const float> values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value) && value >= 0.0F; });
}

void check(const ImportanceData& data) {
    for (const ImportanceEntry& entry : data.entries) {
        require(!entry.name.empty() && entry.columns > 0 && entry.matrices > 0,
                "an entry has a name and a size");
        require(std::ssize(entry.sums) == entry.columns * entry.matrices, "an entry has all its sums");
        require(are_valid(entry.sums) && are_valid(entry.counts) && are_valid(entry.in_max) &&
                    are_valid(entry.out_norm),
                "values are finite and not negative");
        require(entry.has_counts() == (data.form == ImportanceForm::gguf), "GGUF files have counts");
        require(data.find(entry.name) != nullptr, "an entry is found by its name");
    }
}

bool same(const ImportanceEntry& a, const ImportanceEntry& b) {
    return a.name == b.name && a.columns == b.columns && a.matrices == b.matrices && a.sums == b.sums &&
           a.counts == b.counts && a.calls == b.calls && a.in_max == b.in_max && a.out_norm == b.out_norm;
}

void check_copy(const ImportanceData& data) {
    const std::vector<std::byte> bytes = importance_bytes(data, data.form);
    const ImportanceData copy = parse_importance(ByteSource("copy", bytes));
    require(copy.chunks == data.chunks && copy.chunk_size == data.chunk_size &&
                copy.text_hash == data.text_hash && copy.model_hash == data.model_hash,
            "chunks and hashes are read as they were written");
    require(std::ranges::equal(data.entries, copy.entries, same), "entries are read as they were written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const ByteSource source("fuzz", std::as_bytes(std::span(data, size)));
    minim::fuzz::require_refusal({Status::format}, "a file is read or refused", [&] {
        ImportanceData found = parse_importance(source);
        check(found);
        check_copy(found);
        minim::fuzz::require_refusal({Status::invalid}, "forms change, or a size does not fit", [&] {
            give_counts(found, 512);
            check_copy({.form = ImportanceForm::gguf,
                        .datasets = found.datasets,
                        .chunks = found.chunks,
                        .chunk_size = found.chunk_size,
                        .entries = found.entries});
            check(parse_importance(ByteSource("older", importance_bytes(found, ImportanceForm::dat))));
            merge_importance(found, found);
        });
    });
    return 0;
}
