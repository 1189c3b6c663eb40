// SPDX-License-Identifier: Apache-2.0
// The deltas that parsing a piece of output gives. Text that continues the last delta joins it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minim::chat {

struct OutputDelta {
    enum class Kind : uint8_t { reasoning = 1, content = 2, tool_call = 3 };  // as MINIM_DELTA_*
    Kind kind = Kind::content;
    int32_t index = -1;     // of the tool call
    bool has_name = false;  // in the first delta of a call
    std::string name;       // of the function
    std::string text;       // arguments: a fragment of their JSON
};

class DeltaList {
  public:
    void clear() noexcept { deltas_.clear(); }
    // Adds text, which may be empty; the arguments of a tool call are those of the last one.
    void add(OutputDelta::Kind kind, std::string_view text) {
        if (text.empty()) return;
        const int32_t index = kind == OutputDelta::Kind::tool_call ? n_calls_ - 1 : -1;
        if (deltas_.empty() || deltas_.back().kind != kind || deltas_.back().index != index)
            deltas_.push_back({kind, index, false, {}, {}});
        deltas_.back().text += text;
    }
    void add_call(std::string_view name) {
        deltas_.push_back({OutputDelta::Kind::tool_call, n_calls_++, true, std::string(name), {}});
    }

    size_t size() const noexcept { return deltas_.size(); }
    const OutputDelta& operator[](size_t index) const noexcept { return deltas_[index]; }
    int32_t n_calls() const noexcept { return n_calls_; }  // in all, also before clear()

  private:
    std::vector<OutputDelta> deltas_;
    int32_t n_calls_ = 0;
};

}  // namespace minim::chat
