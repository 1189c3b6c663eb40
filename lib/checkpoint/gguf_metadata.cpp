// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_metadata.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/printable.h"

namespace minim::checkpoint {
namespace {

constexpr uint64_t k_string_length_bytes = 8;

MetaType read_type(HeaderReader& in, std::string_view what, std::string_view key) {
    const uint64_t at = in.position();
    const auto code = in.number<uint32_t>(what);
    if (code > static_cast<uint32_t>(MetaType::f64)) {
        fail_at(in.file(), Reason::type, at, "metadata key {}: {} {} is unknown", printable(key), what, code);
    }
    return static_cast<MetaType>(code);
}

void check_booleans(const HeaderReader& in, const MetaValue& value, std::string_view key) {
    const auto bad =
        std::find_if(value.bytes.begin(), value.bytes.end(), [](char b) { return b != 0 && b != 1; });
    if (bad == value.bytes.end()) return;
    const auto index = static_cast<uint64_t>(bad - value.bytes.begin());
    fail_at(in.file(), Reason::value, in.position() - value.bytes.size() + index,
            "metadata key {}: boolean {} is {}, only 0 and 1 are valid", printable(key), index,
            static_cast<unsigned>(static_cast<unsigned char>(*bad)));
}

// The caller has checked the count of an array against the bytes that are left.
void read_fixed_size(HeaderReader& in, MetaValue& value, std::string_view key) {
    value.bytes.resize(value.count * size_of(value.element_type));
    in.read(std::as_writable_bytes(std::span(value.bytes)), "a metadata value");
    if (value.element_type == MetaType::boolean) check_booleans(in, value, key);
}

uint64_t read_array_count(HeaderReader& in, MetaType element_type, std::string_view key) {
    const uint64_t at = in.position();
    const auto count = in.number<uint64_t>("an array count");
    const uint64_t smallest =
        element_type == MetaType::string ? k_string_length_bytes : size_of(element_type);
    if (count > in.file_size() / smallest) {
        fail_at(in.file(), Reason::limit, at,
                "metadata key {}: an array of {} {} elements cannot fit in {} bytes", printable(key), count,
                name_of(element_type), in.file_size());
    }
    if (count > in.left() / smallest) {
        fail_at(in.file(), Reason::truncated, at,
                "metadata key {}: the file ends inside an array of {} {} elements", printable(key), count,
                name_of(element_type));
    }
    return count;
}

void read_array(HeaderReader& in, MetaValue& value, std::string_view key) {
    const uint64_t at = in.position();
    value.element_type = read_type(in, "array element type", key);
    if (value.element_type == MetaType::array) {
        fail_at(in.file(), Reason::type, at, "metadata key {}: an array of arrays is not supported",
                printable(key));
    }
    value.count = read_array_count(in, value.element_type, key);
    if (value.element_type != MetaType::string) {
        read_fixed_size(in, value, key);
        return;
    }
    value.ends.reserve(value.count);
    for (uint64_t i = 0; i < value.count; ++i) {
        in.append_string(value.bytes, "an array element", in.file_size());
        value.ends.push_back(value.bytes.size());
    }
}

MetaValue read_value(HeaderReader& in, std::string_view key) {
    MetaValue value;
    value.type = read_type(in, "value type", key);
    value.element_type = value.type;
    if (value.type == MetaType::array) {
        read_array(in, value, key);
    } else if (value.type == MetaType::string) {
        in.append_string(value.bytes, "a string value", in.file_size());
    } else {
        read_fixed_size(in, value, key);
    }
    return value;
}

}  // namespace

std::string read_gguf_name(HeaderReader& in, std::string_view what) {
    const uint64_t at = in.position();
    std::string name;
    in.append_string(name, what, k_name_cap_bytes);
    if (name.empty()) fail_at(in.file(), Reason::value, at, "{} is empty", what);
    if (name.find('\0') != std::string::npos) {
        fail_at(in.file(), Reason::value, at, "{} {} holds a NUL byte", what, printable(name));
    }
    return name;
}

Metadata read_gguf_metadata(HeaderReader& in, uint64_t count) {
    std::vector<Metadata::Entry> entries;
    for (uint64_t i = 0; i < count; ++i) {
        Metadata::Entry entry;
        entry.position = in.position();
        entry.key = read_gguf_name(in, "a metadata key");
        entry.value = read_value(in, entry.key);
        entries.push_back(std::move(entry));
    }
    Metadata metadata(std::string(in.file()), std::move(entries));
    if (const Metadata::Entry* repeated = metadata.first_repeated(); repeated != nullptr) {
        fail_at(in.file(), Reason::duplicate, repeated->position, "metadata key {} appears twice",
                printable(repeated->key));
    }
    return metadata;
}

}  // namespace minim::checkpoint
