// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/text_file.h"

#include <span>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/foreign_file.h"

namespace minim::checkpoint {

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
    const File file(path);
    if (file.size() > max_bytes) {
        fail_file(Reason::limit, "{}: the file has {} bytes, the limit is {}", path, file.size(), max_bytes);
    }
    std::string text(file.size(), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    if (const std::string what = describe_foreign(std::string_view(text)); !what.empty())
        fail_file(Reason::format, "{}: {}", path, what);
    return text;
}

}  // namespace minim::checkpoint
