// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_parts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/format_text.h"
#include "checkpoint/byte_source.h"
#include "checkpoint/file_names.h"
#include "checkpoint/gguf_header.h"
#include "checkpoint/name_order.h"
#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

constexpr std::string_view k_number_key = "split.no";
constexpr std::string_view k_count_key = "split.count";
constexpr std::string_view k_tensors_key = "split.tensors.count";
constexpr uint64_t k_max_parts = 99999;  // five digits in the file name

// The position of a file in the set, from its metadata.
struct SplitPosition {
    uint64_t number = 0;
    uint64_t count = 1;
    std::optional<uint64_t> tensors;
};

struct SplitFile {
    File file;
    GgufHeader header;
    SplitPosition place;
};

// Throws an error about a split key, with its position in the file.
template <typename... Args>
[[noreturn]] void fail_split(const std::string& file, const Metadata& metadata, std::string_view key,
                             fmt::format_string<Args...> text, Args&&... args) {
    const Metadata::Entry* entry = metadata.find_entry(key);
    fail_at(file, Reason::value, entry != nullptr ? entry->position : 0, "{} {}", key,
            format_text(text, std::forward<Args>(args)...));
}

// Returns the value of a split key; nothing if it is missing. Reports any mistake in it with reason `value`, even a
// wrong type.
std::optional<uint64_t> split_value(const Metadata& metadata, std::string_view key, const std::string& file) {
    const MetaValue* value = metadata.find(key);
    if (value == nullptr) return std::nullopt;
    if (!is_integer(value->type)) {
        fail_split(file, metadata, key, "is of type {}, it must be an integer", name_of(value->type));
    }
    return metadata.unsigned_integer(key);
}

SplitPosition read_place(const Metadata& metadata, const std::string& file) {
    SplitPosition place;
    place.number = split_value(metadata, k_number_key, file).value_or(0);
    place.tensors = split_value(metadata, k_tensors_key, file);
    const std::optional<uint64_t> count = split_value(metadata, k_count_key, file);
    if (!count) {
        place.number = 0;  // without split.count the file is not a part
        return place;
    }
    place.count = std::max<uint64_t>(*count, 1);
    if (place.number >= place.count) {
        fail_split(file, metadata, k_number_key, "is {}, but {} is {}", place.number, k_count_key, *count);
    }
    if (place.count > k_max_parts) {
        fail_split(file, metadata, k_count_key, "is {}, at most {} parts are possible", place.count,
                   k_max_parts);
    }
    return place;
}

SplitFile open_part(const std::string& path) {
    File file(path);
    GgufHeader header = read_gguf_header(ByteSource(file));
    const SplitPosition place = read_place(header.metadata, path);
    return {std::move(file), std::move(header), place};
}

// A missing part means a damaged set, not a wrong path of the caller.
SplitFile open_sibling(const std::string& path) {
    try {
        return open_part(path);
    } catch (const Error& error) {
        if (error.status() != Status::not_found) throw;
        throw Error(Status::io, Reason::io,
                    format_text("a part of the split file is missing: {}", error.what()), error.facts());
    }
}

// Returns the file name, which gives the names of the other parts.
PartName name_of_set(const SplitFile& opened) {
    const std::string& path = opened.file.path();
    const std::optional<PartName> name = parse_part_name(std::filesystem::path(path).filename().string());
    if (!name) {
        fail_file(Reason::io,
                  "{}: is part {} of {}, and the others cannot be found: the files must be named "
                  "PREFIX-00001-of-{:05}.gguf and so on; open the first of them",
                  path, opened.place.number + 1, opened.place.count, opened.place.count);
    }
    if (name->number != opened.place.number + 1 || name->count != opened.place.count) {
        fail_split(path, opened.header.metadata, k_number_key,
                   "and {} make it part {} of {}, its name {} of {}", k_count_key, opened.place.number + 1,
                   opened.place.count, name->number, name->count);
    }
    return *name;
}

void check_sibling(const SplitFile& part, const SplitFile& first, uint64_t index) {
    const std::string& path = part.file.path();
    const Metadata& metadata = part.header.metadata;
    if (part.place.count != first.place.count) {
        fail_split(path, metadata, k_count_key, "is {}, but {} in {}", part.place.count, first.place.count,
                   first.file.path());
    }
    if (part.place.number != index) {
        fail_split(path, metadata, k_number_key, "is {}, expected {}", part.place.number, index);
    }
    if (part.place.tensors && part.place.tensors != first.place.tensors) {
        fail_split(path, metadata, k_tensors_key, "is {}, another value than in {}", *part.place.tensors,
                   first.file.path());
    }
}

// Returns all parts in order, whichever of them `path` is.
std::vector<SplitFile> open_parts(const std::string& path) {
    std::vector<SplitFile> parts;
    parts.push_back(open_part(path));
    const SplitPosition opened = parts.front().place;
    if (opened.count == 1) return parts;

    PartName name = name_of_set(parts.front());
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    const auto path_of = [&](uint64_t index) {
        name.number = index + 1;
        return (folder / part_file_name(name)).string();
    };
    if (opened.number != 0) {
        parts.front() = open_sibling(path_of(0));
        if (parts.front().place.count != opened.count) {
            fail_split(parts.front().file.path(), parts.front().header.metadata, k_count_key,
                       "is {}, but {} in {}", parts.front().place.count, opened.count, path);
        }
    }
    for (uint64_t i = 0; i < opened.count; ++i) {
        if (i != 0) parts.push_back(open_sibling(path_of(i)));
        check_sibling(parts.back(), parts.front(), i);
    }
    return parts;
}

void append(Contents& contents, SplitFile part) {
    const auto index = static_cast<int32_t>(contents.files.size());
    for (Tensor& tensor : part.header.tensors) tensor.part = index;
    contents.tensors.insert(contents.tensors.end(), std::make_move_iterator(part.header.tensors.begin()),
                            std::make_move_iterator(part.header.tensors.end()));
    contents.files.push_back(std::move(part.file));
}

void check_set(const Contents& contents, const SplitPosition& place) {
    const std::string& path = contents.files.front().path();
    if (!place.tensors) {
        fail_split(path, contents.metadata, k_tensors_key, "is missing from the first of {} parts",
                   place.count);
    }
    if (*place.tensors != contents.tensors.size()) {
        fail_split(path, contents.metadata, k_tensors_key, "is {}, but the {} parts hold {} tensors",
                   *place.tensors, place.count, contents.tensors.size());
    }
    const auto repeated =
        find_repeated(contents.tensors, order_by_name(contents.tensors, &Tensor::name), &Tensor::name);
    if (repeated) {
        const Tensor& tensor = contents.tensors[*repeated];
        fail_at(contents.files[tensor.part].path(), Reason::duplicate, tensor.offset,
                "tensor {} is in an earlier part too", printable(tensor.name));
    }
}

std::optional<uint64_t> five_digits(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

std::optional<PartName> parse_part_name(std::string_view file_name) {
    // The tail is "-00001-of-00003.gguf".
    constexpr size_t k_tail = 20;
    if (file_name.size() < k_tail) return std::nullopt;
    const std::string_view tail = file_name.substr(file_name.size() - k_tail);
    if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !ends_in(tail, ".gguf")) return std::nullopt;
    const auto number = five_digits(tail.substr(1, 5));
    const auto count = five_digits(tail.substr(10, 5));
    if (!number || !count || *number == 0 || *number > *count) return std::nullopt;
    return PartName{std::string(file_name.substr(0, file_name.size() - k_tail)), *number, *count,
                    std::string(tail.substr(15))};
}

std::string part_file_name(const PartName& name) {
    return format_text("{}-{:05}-of-{:05}{}", name.prefix, name.number, name.count, name.ending);
}

Contents open_gguf(const std::string& path) {
    std::vector<SplitFile> parts = open_parts(path);
    const SplitPosition place = parts.front().place;
    Contents contents;
    contents.container = Container::gguf;
    contents.metadata = std::move(parts.front().header.metadata);
    for (SplitFile& part : parts) append(contents, std::move(part));
    if (place.count > 1) check_set(contents, place);
    return contents;
}

}  // namespace minim::checkpoint
