// SPDX-License-Identifier: Apache-2.0
#include "progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "output.h"

namespace cli {

ProgressBar::ProgressBar() : visible_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
    if (shown_percent_ != UINT64_MAX) print_note("\r\x1b[K");
}

void ProgressBar::show(uint64_t done_bytes, uint64_t total_bytes) {
    if (!visible_ || total_bytes == 0) return;
    const double share = std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
    const auto percent = static_cast<uint64_t>(share * 100.0);
    if (percent == shown_percent_) return;
    shown_percent_ = percent;
    constexpr size_t k_width = 40;
    const auto filled = static_cast<size_t>(share * static_cast<double>(k_width));
    print_note(fmt::format("\rloading [{}{}] {:3} % of {:.1f} GB", std::string(filled, '#'),
                           std::string(k_width - filled, '.'), percent,
                           static_cast<double>(total_bytes) * 1e-9));
}

}  // namespace cli
