// SPDX-License-Identifier: Apache-2.0
// The key-value part of a checkpoint. Values stay packed as in the file: a vocabulary of 200,000 strings is one block
// of text and one array of end positions. Access is typed; a value of another type is an error that names the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minim::checkpoint {

// The types of values, with their codes in GGUF.
enum class MetaType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

std::string_view name_of(MetaType type) noexcept;
// Returns the bytes of one value of a fixed-size type; 0 for string, array and unknown codes.
size_t size_of(MetaType type) noexcept;
bool is_integer(MetaType type) noexcept;

struct MetaValue {
    MetaType type = MetaType::u8;
    MetaType element_type = MetaType::u8;  // of an array; else equal to type
    uint64_t count = 1;                    // elements of an array; else 1
    std::string bytes;           // elements back to back, little-endian; strings without any separator
    std::vector<uint64_t> ends;  // where each string of an array of strings ends in `bytes`

    bool is_array() const noexcept { return type == MetaType::array; }

    // Return element `index`, which must be below count. Its type must fit: an integer or boolean for the first two
    // (modulo 2^64), any number or boolean for the third, a string for the last.
    uint64_t unsigned_at(uint64_t index) const;
    int64_t signed_at(uint64_t index) const;
    double number_at(uint64_t index) const;
    std::string_view string_at(uint64_t index) const;
};

// Strings of an array, without copies.
class StringArray {
  public:
    explicit StringArray(const MetaValue& value) : value_(&value) {}
    size_t size() const noexcept { return value_->count; }
    std::string_view operator[](size_t index) const { return value_->string_at(index); }

  private:
    const MetaValue* value_;
};

// Returns one line for people: numbers plain, text in quotes, arrays as "u32[3] {1, 2, 3}" with at most `max_elements`
// shown.
std::string to_text(const MetaValue& value, size_t max_elements = 8);

// Immutable, so usable from any thread. Returned pointers and views are valid as long as the Metadata exists, even
// after it is moved.
class Metadata {
  public:
    struct Entry {
        std::string key;
        MetaValue value;
        uint64_t position = 0;  // of the entry in the file, for messages
    };

    Metadata() = default;
    // `file` is named in errors. Keys must be unique; first_repeated() finds those that are not.
    Metadata(std::string file, std::vector<Entry> entries);
    Metadata(Metadata&&) noexcept = default;
    Metadata& operator=(Metadata&&) noexcept = default;
    Metadata(const Metadata&) = delete;
    Metadata& operator=(const Metadata&) = delete;

    const std::vector<Entry>& entries() const noexcept { return entries_; }  // in the order of the file
    const Entry* first_repeated() const;
    const Entry* find_entry(std::string_view key) const;  // nullptr if there is none
    const MetaValue* find(std::string_view key) const;    // the same

    // Return nothing if the key is missing. Throw with reason `type` for a value of another type, `value` for a number out of
    // range.
    std::optional<uint64_t> unsigned_integer(std::string_view key) const;  // any integer type
    std::optional<std::string_view> string(std::string_view key) const;
    std::optional<StringArray> strings(std::string_view key) const;
    std::optional<std::vector<int64_t>> integers(std::string_view key) const;  // array of any integer type

  private:
    [[noreturn]] void fail_type(const Entry& entry, std::string_view wanted) const;

    std::string file_;
    std::vector<Entry> entries_;
    std::vector<uint32_t> order_;
};

}  // namespace minim::checkpoint
