// SPDX-License-Identifier: Apache-2.0
// The formats of strings that are enforced, as expressions: those of RFC 3339 (date, time, date-time, duration), 5321
// (email), 1123 (hostname), 2673 and 4291 (ipv4, ipv6), 3986 and 3987 (uri, iri, references), 6570 (uri-template), 6901
// (json-pointer) and 9562 (uuid).
#pragma once

#include <string_view>

#include "constraint/text_automaton.h"

namespace minim::constraint {

// Returns the automaton of a format; nullptr for other formats, which are annotations. Any thread; each automaton is
// made once a process.
const TextAutomaton* automaton_of_format(std::string_view name);

}  // namespace minim::constraint
