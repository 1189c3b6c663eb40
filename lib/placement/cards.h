// SPDX-License-Identifier: Apache-2.0
// Cards by name, with what a plan needs to know about them, so that machines can be planned without looking up data sheets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "placement/facts.h"

namespace minim::placement {

// Returns the facts of a card, without a device's name. Case, spaces, hyphens and words such as "NVIDIA" and "GeForce" do not
// matter: "NVIDIA GeForce RTX 3090" and "rtx3090" are "RTX 3090". Returns nothing for other names.
std::optional<DeviceFacts> find_card(std::string_view name);

// Returns the names of all cards, separated by commas.
std::string known_cards();

}  // namespace minim::placement
