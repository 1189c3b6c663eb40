// SPDX-License-Identifier: Apache-2.0
// JSON as the safetensors files use it, read front to back without building a document. The headers are
// hostile and up to 100 MB large. So the reader has what document libraries lack: no recursion and a limit on nesting, the
// byte position of every error, repeated names visible to the caller, exact whole numbers, memory for one string at a
// time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace minim::checkpoint {

class JsonReader {
  public:
    // `text` begins at byte `origin` of `file`, which is named in errors; both must outlive the reader.
    JsonReader(std::string_view file, std::string_view text, uint64_t origin)
        : file_(file), text_(text), origin_(origin) {}

    uint64_t position() const noexcept { return origin_ + at_; }  // in the file

    // `what` names the value in the error if it is of another kind. The reason is then `format`, as for all bad JSON.
    void begin_object(std::string_view what);
    bool next_member(std::string& name);  // false at the end of the object, which is consumed
    void begin_array(std::string_view what);
    bool next_element();  // false at the end of the array, which is consumed
    std::string string(std::string_view what);
    // Returns a number that has only digits and is below 2^64. Fails with `if_negative` for a negative whole number,
    // with `format` for every other value.
    uint64_t whole_number(std::string_view what, Reason if_negative);
    // Returns the next value if it is such a number; else skips it and returns nothing.
    std::optional<uint64_t> optional_whole_number();
    void skip_value();
    // Throws unless only white space follows. `only_spaces`: accepts only spaces, with which the format pads.
    void end_of_text(bool only_spaces);

    [[noreturn]] void fail_here(Reason reason, std::string_view text) const;
    [[noreturn]] void fail_at(Reason reason, uint64_t position, std::string_view text) const;

  private:
    static constexpr size_t k_deepest = 16;

    bool more() const noexcept { return at_ < text_.size(); }
    char here() const noexcept { return more() ? text_[at_] : '\0'; }
    void skip_space();
    void open(char bracket, std::string_view what);
    bool next(char closing);
    void read_string(std::string* out);
    void read_escape(std::string* out);
    uint32_t read_hex4();
    void skip_number();
    void skip_scalar_or_open();

    std::string_view file_;
    std::string_view text_;
    uint64_t origin_;
    size_t at_ = 0;
    size_t depth_ = 0;
    std::array<bool, k_deepest> in_object_{};  // of each open bracket
    std::array<bool, k_deepest> is_first_{};   // no member or element of it has been read yet
};

}  // namespace minim::checkpoint
